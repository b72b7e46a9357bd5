"""VisionColBERT: a multi-vector vision model with the interface of PyLate's ColBERT."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sized
from functools import cached_property
from itertools import islice
from typing import Any, ClassVar

import torch
from torch import Tensor
from tqdm.auto import tqdm

from ..errors import check_positive
from . import vision_loaders as loaders
from .encoder import Embeddings


class VisionColBERT:
    """Token embeddings of page images and of questions about them.

    Replaces ``pylate.models.ColBERT`` for documents that are images. It loads ColPali, ColQwen2,
    2.5, 3 and 3.5, ColModernVBERT and ColSmol, by transformers or colpali-engine, and any model
    with its own code that returns ``embeddings``.

    Parameters
    ----------
    model_name_or_path
        A model of the hub, or a folder.
    revision
        Branch, tag or commit on the Hub, of the adapter if the model is one.
    dtype
        Dtype to compute in, for instance ``"bfloat16"``; by default that of the checkpoint.
    device_map
        A device, or a ``device_map`` of transformers for several. By default the first GPU, if
        there is one.
    attn_implementation
        ``"sdpa"``, ``"flash_attention_2"`` or ``"eager"``; by default what transformers chooses.
    max_visual_tokens
        Largest number of tokens of an image, for models of the Qwen family; larger images are
        scaled down. By default the model's own limit, 1,280 for TomoroAI's ColQwen3.
    image_tokens_only
        Whether to drop the embeddings of the prompt around the image.
    trust_remote_code
        Whether to run the checkpoint's own code. No model named above needs it.

    Examples
    --------
    >>> from PIL import Image  # doctest: +SKIP
    >>> model = VisionColBERT("TomoroAI/tomoro-colqwen3-embed-4b")  # doctest: +SKIP
    >>> page = Image.open("page.png")  # doctest: +SKIP
    >>> model.encode([page], is_query=False)[0].shape  # doctest: +SKIP
    (1247, 320)
    """

    modalities: ClassVar[list[str]] = ["image", "text"]  # for mteb

    def __init__(
        self,
        model_name_or_path: str,
        *,
        revision: str | None = None,
        dtype: str | torch.dtype = "auto",
        device_map: Any = None,
        attn_implementation: str | None = None,
        max_visual_tokens: int | None = None,
        image_tokens_only: bool = False,
        trust_remote_code: bool = False,
    ) -> None:
        if device_map is None:
            device_map = "cuda" if torch.cuda.is_available() else "cpu"
        self.model_name_or_path = str(model_name_or_path)
        self.revision = revision
        self.max_visual_tokens = max_visual_tokens
        self.image_tokens_only = image_tokens_only
        self.model, self.processor = loaders.load(
            self.model_name_or_path,
            revision=revision,
            dtype=dtype,
            device_map=device_map,
            attn_implementation=attn_implementation,
            max_visual_tokens=max_visual_tokens,
            trust_remote_code=trust_remote_code,
        )
        # In models of the Qwen family, this module computes positions of tokens on the page.
        self._located = next((m for m in self.model.modules() if hasattr(m, "rope_deltas")), None)

    @cached_property
    def _image_token(self) -> int:
        """Id of the token of an image patch."""
        tokenizer = self.processor.tokenizer
        return int(tokenizer.convert_tokens_to_ids(self.processor.image_token))

    def encode(
        self,
        sentences: Any,
        batch_size: int | None = None,
        show_progress_bar: bool = False,
        convert_to_tensor: bool = False,
        is_query: bool = True,
    ) -> Any:
        """Embed questions or images, as PyLate's ``ColBERT.encode`` does.

        Parameters
        ----------
        sentences
            Texts if ``is_query``, otherwise PIL images; or a single one. Any iterable: of a
            generator only one batch is in memory at a time.
        batch_size
            Number of inputs to compute at a time; by default 32 questions or 4 images.
        show_progress_bar
            Whether to show a progress bar.
        convert_to_tensor
            Whether to return tensors rather than arrays.
        is_query
            Whether the inputs are questions.

        Returns
        -------
        For each input an array or tensor of unit vectors, without padding; one array or tensor
        for a single input.
        Shape: (tokens, d), float32, on the CPU.
        """
        single = isinstance(sentences, str) or hasattr(sentences, "convert")
        inputs = [sentences] if single else sentences
        prepare = self._prepare_queries if is_query else self._prepare_images
        if batch_size is None:
            batch_size = 32 if is_query else 4
        embeddings = self._encode(inputs, prepare, batch_size, show_progress_bar)
        results = [torch.from_numpy(x) for x in embeddings] if convert_to_tensor else embeddings
        return results[0] if single else results

    def query_tokens(self, queries: Iterable[str]) -> list[list[str]]:
        """Return the token that each row of a query's embeddings belongs to."""
        features = [self._prepare_queries([query]) for query in queries]
        names = self.processor.tokenizer.convert_ids_to_tokens
        return [
            names(feature["input_ids"][0][feature["attention_mask"][0].bool()].tolist())
            for feature in features
        ]

    def _prepare_queries(self, queries: list[str]) -> Any:
        for query in queries:
            if not isinstance(query, str):
                raise TypeError(f"queries must be texts, got {type(query).__name__}")
        # Models with their own code have only the second method.
        process = getattr(self.processor, "process_queries", None) or self.processor.process_texts
        return process(queries)

    def _prepare_images(self, images: list[Any]) -> Any:
        for image in images:
            if not hasattr(image, "convert"):
                raise TypeError(f"documents must be PIL images, got {type(image).__name__}")
        return self.processor.process_images([image.convert("RGB") for image in images])

    @torch.inference_mode()
    def _encode(
        self,
        inputs: Iterable[Any],
        prepare: Callable[[list[Any]], Any],
        batch_size: int,
        show_progress_bar: bool,
    ) -> Embeddings:
        check_positive(batch_size=batch_size)
        results: Embeddings = []
        remaining = iter(inputs)
        with tqdm(
            total=len(inputs) if isinstance(inputs, Sized) else None,
            desc=f"Encoding (bs={batch_size})",
            disable=not show_progress_bar,
        ) as progress:
            while batch := list(islice(remaining, batch_size)):
                features = prepare(batch).to(self.model.device)
                output = self.model(**features, **self._positions(features))
                embeddings: Tensor = output if isinstance(output, Tensor) else output.embeddings
                kept = features["attention_mask"].bool()
                if self.image_tokens_only and "pixel_values" in features:
                    kept &= features["input_ids"] == self._image_token
                for tokens, mask in zip(embeddings, kept, strict=True):
                    # Models normalise in their own dtype, for instance bfloat16.
                    unit_rows = torch.nn.functional.normalize(tokens[mask].float(), dim=-1)
                    results.append(unit_rows.cpu().numpy())
                progress.update(len(batch))
        return results

    def _positions(self, features: Any) -> dict[str, Tensor]:
        """Return the positions of tokens in the rows and columns of images, for Qwen's models.

        Without them, some models (transformers' ColQwen2) treat an image as a line of text, and
        others shift the next questions by the size of the last image.
        """
        if self._located is None or "image_grid_thw" not in features:
            return {}
        positions, _ = self._located.get_rope_index(
            features["input_ids"],
            mm_token_type_ids=(features["input_ids"] == self._image_token).int(),
            image_grid_thw=features["image_grid_thw"],
            attention_mask=features["attention_mask"],
        )
        return {"position_ids": positions}
