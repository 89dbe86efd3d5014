"""Words of CUDA and C++ that a source may hold and that change no meaning here."""

from __future__ import annotations

_HEADERS = """
algorithm array assert.h bit cassert cfloat climits cmath cstddef cstdint cstdio cstdlib cstring
cuda.h cuda_bf16.h cuda_fp16.h cuda_pipeline.h cuda_runtime.h cuda_runtime_api.h
device_launch_parameters.h float.h functional iostream iterator limits limits.h math.h memory
mma.h numeric optional sstream stdbool.h stddef.h stdexcept stdint.h stdio.h stdlib.h string
string.h tuple type_traits utility vector
"""
HEADERS = frozenset(_HEADERS.split())
"""Headers of the system, which give no name of the kernel language another meaning."""

_FUNCTIONS = """
acos acosf acosh acoshf asin asinf asinh asinhf assert atan atan2 atan2f atanf atanh atanhf begin
blockDim cbrt cbrtf clock clock64 copysign copysignf cosh coshf cospi cospif data div end erfc
erfcf erfcinv erfcinvf erfcx erfcxf erfinv erfinvf exp10 exp10f expm1 expm1f fabs fabsf fdim fdimf
fdivide fdividef fmax fmaxf fmin fminf fmod fmodf forward free frexp frexpf get hypot hypotf ilogb
ilogbf isfinite isinf isnan j0 j0f j1 j1f jn jnf labs ldexp ldexpf ldiv lgamma lgammaf llabs lldiv
llmax llmin llrint llrintf llround llroundf log10 log10f log1p log1pf logb logbf lrint lrintf
lround lroundf malloc memcpy memset modf modff move nearbyint nearbyintf nextafter nextafterf norm
norm3d norm3df norm4d norm4df normcdf normcdff normcdfinv normcdfinvf normf pow powf printf rcbrt
rcbrtf remainder remainderf remquo remquof rhypot rhypotf rint rintf rnorm rnorm3d rnorm3df
rnorm4d rnorm4df rnormf round roundf scalbln scalblnf scalbn scalbnf signbit sincos sincosf
sincospi sincospif sinh sinhf sinpi sinpif size swap tan tanf tgamma tgammaf threadIdx trunc
truncf ullmax ullmin umax umin warpSize y0 y0f y1 y1f yn ynf
"""
FUNCTIONS = frozenset(_FUNCTIONS.split())
"""Functions and variables of CUDA and C++ without a meaning here. No function of a source has such
a name, or one that begins with an underscore: C++ would overload the two."""

PRAGMAS = frozenset({"unroll", "once", "nv_diag_suppress", "nv_diag_default"})
ATTRIBUTES = frozenset({"maybe_unused", "likely", "unlikely", "nodiscard"})
QUALIFIERS = frozenset(
    {"inline", "static", "constexpr", "extern", "__forceinline__", "__noinline__"}
)
"""Hints to the compiler."""
