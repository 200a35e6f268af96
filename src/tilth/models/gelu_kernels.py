"""Compiled kernels of GELU times a gate, as ModernBERT's feed-forward layers compute it."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from tilth.models.kernel_arrays import WIDTH
from tilth.models.kernels import kernel
from tilth.models.vector_code import call, exp2, floats, load_floats, store_floats

# The error function as a polynomial of 1 / (1 + _INNER x) times exp(-x * x), the highest power
# first, to 1.5e-7: Abramowitz and Stegun, "Handbook of Mathematical Functions", 7.1.26.
_ERROR = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)
_INNER = 0.3275911
_ROOT, _HALF_LOG2_E = 0.7071067812, 0.7213475204  # of 1/2; of exp(-x * x / 2) to base 2
_HIGHEST = 0.3989422804  # the normal density at 0


def _normal(builder: Any, values: Any) -> tuple[Any, Any]:
    """Return the normal distribution function and its density at some values."""

    def number(value: float) -> Any:
        return floats(WIDTH, value)

    size = call(builder, "fabs", values)
    inner = call(builder, "fma", size, number(_INNER * _ROOT), number(1.0))
    inverse = builder.fdiv(number(1.0), inner)
    tail = number(_ERROR[0])
    for factor in _ERROR[1:]:
        tail = call(builder, "fma", tail, inverse, number(factor))
    square = builder.fmul(values, values)
    decay = exp2(builder, builder.fmul(square, number(-_HALF_LOG2_E)))
    tail = builder.fmul(builder.fmul(tail, inverse), builder.fmul(decay, number(0.5)))
    is_above = builder.fcmp_ordered(">", values, number(0.0))
    share = builder.select(is_above, builder.fsub(number(1.0), tail), tail)
    return share, builder.fmul(decay, number(_HIGHEST))


@intrinsic
def _gate(_: Any, kind: Any, source: Any, gates: Any, target: Any) -> Any:
    """Write GELU of WIDTH values times their gates; addresses."""

    def generate(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
        _, *addresses, target = arguments
        none = ir.Constant(target.type, 0)
        values, gates = (load_floats(builder, one, none, kind, WIDTH) for one in addresses)
        share, _ = _normal(builder, values)
        product = builder.fmul(builder.fmul(values, share), gates)
        store_floats(builder, target, kind, product)
        return context.get_dummy_value()

    return types.void(kind, source, gates, target), generate


@intrinsic
def _gate_back(
    _: Any, kind: Any, source: Any, gates: Any, given: Any, target: Any, of_gates: Any
) -> Any:
    """Write the gradients of WIDTH values and of their gates; addresses."""

    def generate(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
        _, *addresses, target, of_gates = arguments
        none = ir.Constant(target.type, 0)
        values, gates, given = (load_floats(builder, one, none, kind, WIDTH) for one in addresses)
        share, density = _normal(builder, values)
        slope = call(builder, "fma", values, density, share)
        store_floats(builder, target, kind, builder.fmul(builder.fmul(given, gates), slope))
        product = builder.fmul(builder.fmul(values, share), given)
        store_floats(builder, of_gates, kind, product)
        return context.get_dummy_value()

    return types.void(kind, source, gates, given, target, of_gates), generate


@kernel
def gate(wide, out):  # type: ignore[no-untyped-def]
    """Compute GELU of the first half of each row, times the second half.

    Args:
        wide: # (rows, 2 * width), a multiple of WIDTH
        out: # (rows, width)
    """
    kind, item, width = wide[0, 0], wide.itemsize, out.shape[1]
    for row in range(len(wide)):
        source = wide.ctypes.data + 2 * row * width * item
        for column in range(0, width, WIDTH):
            place = source + column * item
            target = out.ctypes.data + (row * width + column) * item
            _gate(kind, place, place + width * item, target)  # type: ignore[call-arg]


@kernel
def gate_back(wide, given, out):  # type: ignore[no-untyped-def]
    """Compute the gradient of `gate`.

    Args:
        wide: # (rows, 2 * width), a multiple of WIDTH
        given: of the output. # (rows, width)
        out: # (rows, 2 * width)
    """
    kind, item, width = wide[0, 0], wide.itemsize, given.shape[1]
    for row in range(len(wide)):
        start = 2 * row * width * item
        for column in range(0, width, WIDTH):
            shift = column * item
            place, target = wide.ctypes.data + start + shift, out.ctypes.data + start + shift
            one = given.ctypes.data + (row * width + column) * item
            half = width * item
            _gate_back(kind, place, place + half, one, target, target + half)  # type: ignore[call-arg]
