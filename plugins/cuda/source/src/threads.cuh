// How threads share work: several elements at once, sizes that are not known, values of other threads of the warp.

// Neighbours in memory.
template <int N, class T> struct Pack { T lane[N]; };

// So many bytes, read and written at once.
template <int BYTES> struct Word;
template <> struct Word<1> { typedef uchar type; };
template <> struct Word<2> { typedef ushort type; };
template <> struct Word<4> { typedef uint type; };
template <> struct Word<8> { typedef uint2 type; };
template <> struct Word<16> { typedef uint4 type; };

// A pack as words of 16 bytes, or as one that is shorter.
template <int N, class T> union Words {
    enum { BYTES = N * sizeof(T) < 16 ? N * sizeof(T) : 16, COUNT = N * sizeof(T) / BYTES };
    typename Word<BYTES>::type word[COUNT];
    Pack<N, T> pack;
};

template <int N, class T> FUNCTION Pack<N, T> read(const T *at) {
    typedef Words<N, T> Form;
    Form form;
#pragma unroll
    for (int i = 0; i < Form::COUNT; i++)
        form.word[i] = ((const typename Word<Form::BYTES>::type *)at)[i];
    return form.pack;
}

template <int N, class T> FUNCTION void write(T *at, Pack<N, T> pack) {
    typedef Words<N, T> Form;
    Form form;
    form.pack = pack;
#pragma unroll
    for (int i = 0; i < Form::COUNT; i++)
        ((typename Word<Form::BYTES>::type *)at)[i] = form.word[i];
}

// Of two numbers that are not negative; in 32 bits where both fit.
FUNCTION long quotient(long a, long b) { return (a | b) >> 32 ? a / b : (long)((uint)a / (uint)b); }

FUNCTION long least(long a, long b) { return a < b ? a : b; }

// The value that the thread of the warp has whose number differs in these bits. All threads of the warp call it.
template <class T> FUNCTION T across(T value, int bits) { return (T)__shfl_xor_sync(~0u, value, bits); }

// The value of the first of so many threads.
template <class T> FUNCTION T first(T value, int threads) { return (T)__shfl_sync(~0u, value, 0, threads); }
