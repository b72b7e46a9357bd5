"""SIMD vectors inside compiled functions.

The compiler vectorises loops over short rows badly: it cannot rule out that the arrays overlap, and
it handles the end of a row number by number. Kernels that spend their time in such loops use
explicit vectors instead: they ``load`` and :func:`store` :data:`LANES` neighbours of a row and
calculate with them as with numbers.

Rows must be padded to a whole number of lanes. Indices are not checked.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import reduce
from typing import Any

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, overload, register_model

# Compiled functions call an intrinsic without its first parameter, which type checkers do not know.
_intrinsic: Any = intrinsic

LANES = 16 if binding.get_host_cpu_features().get("avx512f") else 8
"""Number of float32 in a register of the processor."""

# Sums of products become fused instructions; all other arithmetic is exact IEEE.
_FLAGS = ("contract",)


class Lanes(types.Type):
    """Numba type of a SIMD vector of float32, float64 or uint64."""

    def __init__(self, dtype: Any, width: int) -> None:
        super().__init__(name=f"Lanes({dtype}, {width})")
        self.dtype = dtype
        self.width = width


_SCALARS = {
    types.float32: ir.FloatType(),
    types.float64: ir.DoubleType(),
    types.uint64: ir.IntType(64),
}


def _vector(lanes: Lanes) -> Any:
    return ir.VectorType(_SCALARS[lanes.dtype], lanes.width)


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, lanes: Lanes) -> None:
        super().__init__(manager, lanes, _vector(lanes))  # type: ignore[no-untyped-call]


def _pointer(context: Any, builder: Any, signature: Any, array: Any, index: Any, to: Any) -> Any:
    data = context.make_array(signature.args[0])(context, builder, array).data
    return builder.bitcast(builder.gep(data, [index]), _vector(to).as_pointer())


def _alignment(array_type: Any) -> int:
    return int(array_type.dtype.bitwidth) // 8


def _of_width(width: int) -> tuple[Any, Any]:
    """Return the load and splat intrinsics for vectors of this width."""

    @_intrinsic  # type: ignore[misc]
    def load(_typing: Any, array: Any, index: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            at = _pointer(context, builder, signature, args[0], args[1], signature.return_type)
            return builder.load(at, align=_alignment(signature.args[0]))

        return Lanes(array.dtype, width)(array, types.intp), generate

    @_intrinsic  # type: ignore[misc]
    def splat(_typing: Any, number: Any) -> Any:
        def generate(_context: Any, builder: Any, signature: Any, args: Any) -> Any:
            nothing = ir.Constant(_vector(signature.return_type), ir.Undefined)
            first = builder.insert_element(nothing, args[0], ir.Constant(ir.IntType(32), 0))
            everywhere = ir.Constant(ir.VectorType(ir.IntType(32), width), [0] * width)
            return builder.shuffle_vector(first, nothing, everywhere)

        return Lanes(number, width)(number), generate

    return load, splat


# load(array, i) is array[i : i + LANES] of a contiguous one-dimensional array; splat(x) has x in
# all lanes. The other intrinsics have vectors of eight or four numbers on every processor.
load, splat = _of_width(LANES)
load_eight, splat_eight = _of_width(8)
load_four, _ = _of_width(4)

WORDS = Lanes(types.uint64, 8)
BYTES = 64
"""Number of bytes of the eight words that :func:`load_words` reads."""


@_intrinsic  # type: ignore[misc]
def load_words(_typing: Any, array: Any, index: Any) -> Any:
    """Return 64 bytes of a contiguous array of bytes as eight words."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        at = _pointer(context, builder, signature, args[0], args[1], WORDS)
        return builder.load(at, align=1)

    return WORDS(array, types.intp), generate


@_intrinsic  # type: ignore[misc]
def add_common_bits(_typing: Any, count: Any, x: Any, y: Any) -> Any:
    """Add to each word of count the number of bits that are set in both x and y."""

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        words = _vector(count)
        ctpop = cgutils.get_or_insert_function(  # type: ignore[no-untyped-call]
            builder.module, ir.FunctionType(words, [words]), f"llvm.ctpop.v{count.width}i64"
        )
        return builder.add(args[0], builder.call(ctpop, [builder.and_(args[1], args[2])]))

    return count(count, x, y), generate


@_intrinsic  # type: ignore[misc]
def twice_plus(_typing: Any, x: Any, y: Any) -> Any:
    """Return 2 x + y for vectors of words."""

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.add(builder.add(args[0], args[0]), args[1])

    return x(x, x), generate


@_intrinsic  # type: ignore[misc]
def negative(_typing: Any, x: Any) -> Any:
    """Return -x for a vector of words."""

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.neg(args[0])

    return x(x), generate


@_intrinsic  # type: ignore[misc]
def total_words(_typing: Any, value: Any) -> Any:
    """Return the sum of eight words."""

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        lane = ir.IntType(32)
        words = [builder.extract_element(args[0], lane(i)) for i in range(value.width)]
        return reduce(builder.add, words)

    return types.int64(value), generate


@_intrinsic  # type: ignore[misc]
def store(_typing: Any, array: Any, index: Any, value: Any) -> Any:
    """Write a vector to a contiguous one-dimensional array, starting at an index."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        at = _pointer(context, builder, signature, args[0], args[1], signature.args[2])
        builder.store(args[2], at, align=_alignment(signature.args[0]))
        return context.get_dummy_value()

    return types.none(array, types.intp, value), generate


@_intrinsic  # type: ignore[misc]
def total(_typing: Any, value: Any) -> Any:
    """Return the sum of a vector's numbers."""

    def generate(_context: Any, builder: Any, signature: Any, args: Any) -> Any:
        scalar, vector = _SCALARS[signature.return_type], _vector(signature.args[0])
        name = f"llvm.vector.reduce.fadd.v{value.width}f{value.dtype.bitwidth}"
        function = cgutils.get_or_insert_function(  # type: ignore[no-untyped-call]
            builder.module, ir.FunctionType(scalar, [scalar, vector]), name
        )
        # reassoc allows a pairwise sum.
        return builder.call(function, [ir.Constant(scalar, -0.0), args[0]], fastmath=["reassoc"])

    return value.dtype(value), generate


@_intrinsic  # type: ignore[misc]
def totals(_typing: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    """Return the sums of four vectors as a vector of four, faster than four calls of total."""
    width = a.width

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        def chosen(x: Any, y: Any, lanes: list[int]) -> Any:
            mask = ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), lanes)
            return builder.shuffle_vector(x, y, mask)

        def added(x: Any, y: Any, low: list[int], high: list[int]) -> Any:
            return builder.fadd(chosen(x, y, low), chosen(x, y, high))

        groups = range(0, width, 4)
        # First, in each group of four lanes of two vectors: x0 + x2, y0 + y2, x1 + x3, y1 + y3.
        even = [lane for g in groups for lane in (g, g + width, g + 1, g + 1 + width)]
        odd = [lane + 2 for lane in even]
        ab, cd = added(args[0], args[1], even, odd), added(args[2], args[3], even, odd)
        # Then the sums of four lanes of all four vectors, side by side.
        first = [lane for g in groups for lane in (g, g + 1, g + width, g + 1 + width)]
        result = added(ab, cd, first, [lane + 2 for lane in first])
        # Then the sum over the groups, by halves.
        while (lanes := result.type.count) > 4:
            half = lanes // 2
            result = added(result, result, list(range(half)), list(range(half, lanes)))
        return result

    return Lanes(a.dtype, 4)(a, a, a, a), generate


@_intrinsic  # type: ignore[misc]
def select_less(_typing: Any, x: Any, y: Any, yes: Any, no: Any) -> Any:
    """Return ``yes`` in lanes with x < y and ``no`` in the others."""

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.select(builder.fcmp_ordered("<", args[0], args[1]), args[2], args[3])

    return yes(x, x, yes, yes), generate


def _define(operation: Callable[[Any, Any], Any], instruction: str) -> None:
    """Define a Python operator for two vectors."""

    @_intrinsic  # type: ignore[misc]
    def calculate(_typing: Any, x: Any, y: Any) -> Any:
        def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
            return getattr(builder, instruction)(*args, flags=_FLAGS)

        return x(x, x), generate

    @overload(operation, strict=False)
    def between_vectors(x: Any, y: Any) -> Any:
        if isinstance(x, Lanes) and x == y:
            return lambda x, y: calculate(x, y)
        return None


_define(operator.add, "fadd")
_define(operator.sub, "fsub")
_define(operator.mul, "fmul")
_define(operator.truediv, "fdiv")
