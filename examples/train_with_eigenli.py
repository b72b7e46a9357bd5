"""Train a model for retrieval by subspaces: PyLate's contrastive training with another score.

    python examples/train_with_eigenli.py [MODEL]

MODEL is any PyLate model or encoder, by default one from the Hugging Face hub.
"""

import sys

from datasets import Dataset
from pylate import losses, models, utils
from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments

from pylate_eigenli import EigenLIScores

model = models.ColBERT(
    model_name_or_path=sys.argv[1] if len(sys.argv) > 1 else "lightonai/GTE-ModernColBERT-v1",
)

triplets = Dataset.from_list(
    [
        {
            "query": "how do bees make honey?",
            "positive": "Bees collect nectar and turn it into honey in the hive.",
            "negative": "A beehive haircut was popular in the sixties.",
        },
        {
            "query": "what makes bread rise?",
            "positive": "Yeast ferments sugar into gas that lifts the dough.",
            "negative": "Bread is sold in slices or whole loaves.",
        },
    ]
    * 8
)

trainer = SentenceTransformerTrainer(
    model=model,
    args=SentenceTransformerTrainingArguments(
        output_dir="eigenli-training",
        max_steps=10,
        per_device_train_batch_size=4,
        learning_rate=1e-5,
        logging_steps=2,
        save_strategy="no",
        report_to="none",
    ),
    train_dataset=triplets,
    # The only difference: documents are scored as subspaces of k directions.
    loss=losses.Contrastive(model=model, score_metric=EigenLIScores(k=16)),
    data_collator=utils.ColBERTCollator(model.tokenize),
)
trainer.train()
