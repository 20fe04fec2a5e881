// What every kernel finds at its head: operations that OpenCL C has not, or not as the kernel IR means them
// (`flambeau_plugin::reference`). bool is uchar, 0 or 1; f16 and bf16 are their bits.

#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#pragma OPENCL FP_CONTRACT OFF

static float f16_to_float(ushort bits) {
    return vload_half(0, (const half *)&bits);
}

static ushort float_to_f16(float x) {
    ushort bits;
    vstore_half_rte(x, 0, (half *)&bits);
    return bits;
}

static float bf16_to_float(ushort bits) {
    return as_float((uint)bits << 16);
}

static ushort float_to_bf16(float x) {
    uint bits = as_uint(x);
    return isnan(x) ? 0x7fc0 : (ushort)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

// What the type does not hold becomes its least number, as on x86-64.
static int to_int(double x) {
    double whole = trunc(x);
    return whole >= -0x1p31 && whole < 0x1p31 ? (int)whole : INT_MIN;
}

static long to_long(double x) {
    double whole = trunc(x);
    return whole >= -0x1p63 && whole < 0x1p63 ? (long)whole : LONG_MIN;
}

// U is an unsigned type in which sums and products wrap as they do in T.
#define INTEGERS(T, U)                                                                         \
    static T add_##T(T a, T b) { return (T)((U)a + (U)b); }                                    \
    static T sub_##T(T a, T b) { return (T)((U)a - (U)b); }                                    \
    static T mul_##T(T a, T b) { return (T)((U)a * (U)b); }                                    \
    static T abs_##T(T a) { return a < 0 ? sub_##T(0, a) : a; }                                \
    static T max_##T(T a, T b) { return a > b ? a : b; }                                       \
    static T min_##T(T a, T b) { return a < b ? a : b; }                                       \
    static T trunc_div_##T(T a, T b) {                                                         \
        return b == 0 ? 0 : (T)-1 < 0 && b == (T)-1 ? sub_##T(0, a) : a / b;                   \
    }                                                                                          \
    static T fmod_##T(T a, T b) { return b == 0 || ((T)-1 < 0 && b == (T)-1) ? 0 : a % b; }    \
    static T floor_div_##T(T a, T b) {                                                         \
        T rest = fmod_##T(a, b);                                                               \
        T quotient = trunc_div_##T(a, b);                                                      \
        return rest != 0 && (rest < 0) != (b < 0) ? quotient - 1 : quotient;                   \
    }                                                                                          \
    static T rem_##T(T a, T b) {                                                               \
        T rest = fmod_##T(a, b);                                                               \
        return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;                           \
    }                                                                                          \
    static T shl_##T(T a, T b) {                                                               \
        ulong count = (ulong)(long)b;                                                          \
        return count < 8 * sizeof(T) ? (T)((U)a << count) : 0;                                 \
    }                                                                                          \
    static T shr_##T(T a, T b) {                                                               \
        ulong count = (ulong)(long)b;                                                          \
        return count < 8 * sizeof(T) ? a >> count : a < 0 ? (T)-1 : 0;                         \
    }

INTEGERS(uchar, uint)
INTEGERS(char, uint)
INTEGERS(short, uint)
INTEGERS(int, uint)
INTEGERS(long, ulong)

#define FLOATS(T)                                                                              \
    static T max_##T(T a, T b) { return isnan(a) || isnan(b) ? (T)NAN : b > a ? b : a; }       \
    static T min_##T(T a, T b) { return isnan(a) || isnan(b) ? (T)NAN : b < a ? b : a; }       \
    static T rem_##T(T a, T b) {                                                               \
        T rest = fmod(a, b);                                                                   \
        return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;                           \
    }                                                                                          \
    static T floor_div_##T(T a, T b) {                                                         \
        T rest = fmod(a, b);                                                                   \
        T quotient = div_##T(a - rest, b);                                                     \
        T whole;                                                                               \
        if (b == 0)                                                                            \
            return div_##T(a, b);                                                              \
        if (rest != 0 && (rest < 0) != (b < 0))                                                \
            quotient -= 1;                                                                     \
        if (quotient == 0)                                                                     \
            return copysign((T)0, div_##T(a, b));                                              \
        whole = floor(quotient);                                                               \
        return quotient - whole > (T)0.5 ? whole + 1 : whole;                                  \
    }

// A quotient or root of f64 that is rounded once more is the nearest f32.
#ifdef ROUNDS_F32
static float div_float(float a, float b) { return a / b; }
static float sqrt_float(float a) { return sqrt(a); }
#else
static float div_float(float a, float b) { return (float)((double)a / (double)b); }
static float sqrt_float(float a) { return (float)sqrt((double)a); }
#endif
static double div_double(double a, double b) { return a / b; }
static double sqrt_double(double a) { return sqrt(a); }

FLOATS(float)
FLOATS(double)
