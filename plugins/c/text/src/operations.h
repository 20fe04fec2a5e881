// Operations that C has not, or not as the kernel IR means them (`flambeau_plugin::reference`). bool is uchar, 0 or 1.

// U is an unsigned type in which sums and products wrap as they do in T.
#define INTEGERS(T, U)                                                                         \
    FUNCTION T add_##T(T a, T b) { return (T)((U)a + (U)b); }                                  \
    FUNCTION T sub_##T(T a, T b) { return (T)((U)a - (U)b); }                                  \
    FUNCTION T mul_##T(T a, T b) { return (T)((U)a * (U)b); }                                  \
    FUNCTION T abs_##T(T a) { return a < 0 ? sub_##T(0, a) : a; }                              \
    FUNCTION T max_##T(T a, T b) { return a > b ? a : b; }                                     \
    FUNCTION T min_##T(T a, T b) { return a < b ? a : b; }                                     \
    FUNCTION T trunc_div_##T(T a, T b) {                                                       \
        return b == 0 ? 0 : (T)-1 < 0 && b == (T)-1 ? sub_##T(0, a) : a / b;                   \
    }                                                                                          \
    FUNCTION T fmod_##T(T a, T b) { return b == 0 || ((T)-1 < 0 && b == (T)-1) ? 0 : a % b; }  \
    FUNCTION T floor_div_##T(T a, T b) {                                                       \
        T rest = fmod_##T(a, b);                                                               \
        T quotient = trunc_div_##T(a, b);                                                      \
        return rest != 0 && (rest < 0) != (b < 0) ? quotient - 1 : quotient;                   \
    }                                                                                          \
    FUNCTION T rem_##T(T a, T b) {                                                             \
        T rest = fmod_##T(a, b);                                                               \
        return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;                           \
    }                                                                                          \
    FUNCTION T shl_##T(T a, T b) {                                                             \
        ulong count = (ulong)(long)b;                                                          \
        return count < 8 * sizeof(T) ? (T)((U)a << count) : 0;                                 \
    }                                                                                          \
    FUNCTION T shr_##T(T a, T b) {                                                             \
        ulong count = (ulong)(long)b;                                                          \
        return count < 8 * sizeof(T) ? a >> count : a < 0 ? (T)-1 : 0;                         \
    }

INTEGERS(uchar, uint)
INTEGERS(char, uint)
INTEGERS(short, uint)
INTEGERS(int, uint)
INTEGERS(long, ulong)

#define FLOATS(T)                                                                              \
    FUNCTION T max_##T(T a, T b) { return (b > a) | isnan(b) ? b : a; }                        \
    FUNCTION T min_##T(T a, T b) { return (b < a) | isnan(b) ? b : a; }                        \
    FUNCTION T rem_##T(T a, T b) {                                                             \
        T rest = fmod(a, b);                                                                   \
        return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;                           \
    }                                                                                          \
    FUNCTION T floor_div_##T(T a, T b) {                                                       \
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

FLOATS(float)
FLOATS(double)
