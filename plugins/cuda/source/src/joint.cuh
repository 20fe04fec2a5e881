// Two reductions of a row in one pass over it (`joint.rs`): what is kept for the second one, and how elements (`Pack`) and what
// was found of others are added to it.

// Of elements how many there are, what one of them is, how far off it their mean is, and the sum of squares of what they are
// off their mean; of none all zeros. The mean itself would be too coarse where elements are large and close together. In f32
// a thread that takes single elements counts no further than 2^24; nor does a sum of as many squares that are alike.
template <class T> struct Spread { T count, base, off, squares; };

FUNCTION float ratio(float a, float b) { return __fdividef(a, b); }
FUNCTION double ratio(double a, double b) { return a / b; }

// With others, whose mean is so far off the same element (Chan, Golub and LeVeque, Updating Formulae and a Pairwise Algorithm
// for Computing Sample Variances, 1979).
template <class T> FUNCTION Spread<T> with(Spread<T> a, T count, T off, T squares) {
    T all = a.count + count, part = ratio(count, all), distance = off - a.off;
    a.off += distance * part;
    // In this order, as 0 times a square that is too large is not 0.
    a.squares += squares + distance * (a.count * part) * distance;
    a.count = all;
    return a;
}

template <int N, class T> FUNCTION Spread<T> with(Spread<T> a, Pack<N, T> elements) {
    if (a.count == 0)
        a.base = elements.lane[0];
    T off = elements.lane[0] - a.base, squares = 0;
    if (N > 1) {
        T sum = off;
#pragma unroll
        for (int k = 1; k < N; k++)
            sum += elements.lane[k] - a.base;
        off = sum / N;
#pragma unroll
        for (int k = 0; k < N; k++) {
            T distance = elements.lane[k] - a.base - off;
            squares += distance * distance;
        }
    }
    return with(a, (T)N, off, squares);
}

template <class T> FUNCTION Spread<T> with(Spread<T> a, Spread<T> b) {
    return a.count == 0 ? b : with(a, b.count, b.base - a.base + b.off, b.squares);
}

// The sum of squares of what the elements are off any number: the mean as the kernel computes it.
template <class T> FUNCTION T result(Spread<T> a, T from) {
    T distance = a.base - from + a.off;
    return a.count == 0 ? 0 : a.squares + a.count * (distance * distance);
}

template <class T> FUNCTION Spread<T> across(Spread<T> a, int bits) {
    return {across(a.count, bits), across(a.base, bits), across(a.off, bits), across(a.squares, bits)};
}

template <class T> FUNCTION Spread<T> first(Spread<T> a, int threads) {
    return {first(a.count, threads), first(a.base, threads), first(a.off, threads), first(a.squares, threads)};
}

// Of elements the greatest number, -inf of none, and the sum of the exponentials of what they are above it. That is inf or nan
// where one of them is, 1 and more where all are -inf, and 0 of none.
template <class T> struct Exponentials { T most, sum; };

FUNCTION float greater(float a, float b) { return fmaxf(a, b); }
FUNCTION double greater(double a, double b) { return fmax(a, b); }
FUNCTION float raised(float x) { return expf(x); }
FUNCTION double raised(double x) { return exp(x); }

// What a sum is multiplied with when there is a greater one. It is computed in any case: nothing waits for a branch.
template <class T> FUNCTION T scale(T most, T greatest) {
    T scale = raised(most - greatest);
    return most == greatest ? 1 : scale;
}

template <int N, class T> FUNCTION Exponentials<T> with(Exponentials<T> a, Pack<N, T> elements) {
    T most = a.most;
#pragma unroll
    for (int k = 0; k < N; k++)
        most = greater(elements.lane[k], most);
    T from = isinf(most) ? 0 : most, sum = most < from ? 1 : 0;
#pragma unroll
    for (int k = 0; k < N; k++)
        sum += raised(elements.lane[k] - from);
    return {most, a.sum * scale(a.most, most) + sum};
}

template <class T> FUNCTION Exponentials<T> with(Exponentials<T> a, Exponentials<T> b) {
    T most = greater(a.most, b.most);
    return {most, a.sum * scale(a.most, most) + b.sum * scale(b.most, most)};
}

// The sum of the exponentials of what the elements are above any number: the greatest, or what the kernel has for it where it
// is infinite.
template <class T> FUNCTION T result(Exponentials<T> a, T from) {
    return a.sum == 0 ? 0 : a.sum * raised(a.most - from);
}

template <class T> FUNCTION Exponentials<T> across(Exponentials<T> a, int bits) {
    return {across(a.most, bits), across(a.sum, bits)};
}
