"""Density of seawater by the international equation of state EOS-80: about 100 pointwise operations.

Source of the formula and its coefficients: UNESCO technical papers in marine science 44 (1983).
"""

import torch
from torch import Tensor


def pure_water_density(t: Tensor) -> Tensor:
    """Density of pure water in kg/m3 at temperature `t` (degrees C), at one atmosphere."""
    return 999.842594 + t * (
        6.793952e-2 + t * (-9.095290e-3 + t * (1.001685e-4 + t * (-1.120083e-6 + t * 6.536332e-9)))
    )


def surface_density(s: Tensor, t: Tensor) -> Tensor:
    """Density in kg/m3 at practical salinity `s` and temperature `t` (degrees C), at one atmosphere."""
    a = 8.24493e-1 + t * (-4.0899e-3 + t * (7.6438e-5 + t * (-8.2467e-7 + t * 5.3875e-9)))
    b = -5.72466e-3 + t * (1.0227e-4 - t * 1.6546e-6)
    return pure_water_density(t) + s * a + s * torch.sqrt(s) * b + 4.8314e-4 * s * s


def bulk_modulus(s: Tensor, t: Tensor, p: Tensor) -> Tensor:
    """Secant bulk modulus in bar at salinity `s`, temperature `t` (degrees C) and pressure `p` (bar)."""
    root = torch.sqrt(s)
    pure = 19652.21 + t * (148.4206 + t * (-2.327105 + t * (1.360477e-2 - t * 5.155288e-5)))
    surface = (
        pure
        + s * (54.6746 + t * (-0.603459 + t * (1.09987e-2 - t * 6.1670e-5)))
        + s * root * (7.944e-2 + t * (1.6483e-2 - t * 5.3009e-4))
    )
    linear = (
        3.239908
        + t * (1.43713e-3 + t * (1.16092e-4 - t * 5.77905e-7))
        + s * (2.2838e-3 - t * (1.0981e-5 + t * 1.6078e-6))
        + s * root * 1.91075e-4
    )
    quadratic = 8.50935e-5 + t * (-6.12293e-6 + t * 5.2787e-8) + s * (-9.9348e-7 + t * (2.0816e-8 + t * 9.1697e-10))
    return surface + p * (linear + p * quadratic)


def density(s: Tensor, t: Tensor, p: Tensor) -> Tensor:
    """In-situ density in kg/m3; `s` practical salinity, `t` degrees C, `p` bar, all of one shape."""
    return surface_density(s, t) / (1.0 - p / bulk_modulus(s, t, p))
