// Included before a source that is observed: writes the words of a variable down with instructions
// that only engine/ptx/isa/observe.py executes; ptxas reads comments. On the host nothing is done.
#pragma once
#ifdef __CUDACC__
#include <cstddef>
#include <type_traits>
#include <utility>

namespace cubridge {

// What the words of a variable are: 1 floats, 2 a signed and 3 an unsigned whole number of 32 bits or
// fewer, 4 one of 64 bits, 5 a double, 0 anything else.
template <class T> __host__ __device__ constexpr int kind() {
  using E = std::remove_cv_t<std::remove_all_extents_t<T>>;
  if constexpr (std::is_same_v<E, float>) return 1;
  else if constexpr (std::is_integral_v<E> && sizeof(E) == 8) return 4;
  else if constexpr (std::is_integral_v<E>) return std::is_signed_v<E> ? 2 : 3;
  else if constexpr (std::is_same_v<E, double>) return 5;
  else return 0;
}

// A register as the source has it, without a copy of other type: nvcc would use a copy that was made
// while a matmul was under way again after the wait.
#ifdef __CUDA_ARCH__
template <int Place, int Word, int Kind, bool Change> __device__ __forceinline__ void seen(float& bits) {
  if constexpr (Change)
    asm volatile("//@ observe.rw.b32 %0, %1, %2, %3;\n\t" : "+f"(bits) : "n"(Place), "n"(Word), "n"(Kind));
  else
    asm volatile("//@ observe.b32 %0, %1, %2, %3;\n\t" ::"f"(bits), "n"(Place), "n"(Word), "n"(Kind));
}

template <int Place, int Word, int Kind, bool Change> __device__ __forceinline__ void seen(unsigned& bits) {
  if constexpr (Change)
    asm volatile("//@ observe.rw.b32 %0, %1, %2, %3;\n\t" : "+r"(bits) : "n"(Place), "n"(Word), "n"(Kind));
  else
    asm volatile("//@ observe.b32 %0, %1, %2, %3;\n\t" ::"r"(bits), "n"(Place), "n"(Word), "n"(Kind));
}
#endif

template <int Place, int Kind, int Bytes, bool Change, std::size_t Word>
__device__ __forceinline__ void word(char* at) {
#ifdef __CUDA_ARCH__
  constexpr int size = Bytes - int(Word) * 4 < 4 ? Bytes - int(Word) * 4 : 4;
  std::conditional_t<(Kind < 2 && size == 4), float, unsigned> bits = 0;
  __builtin_memcpy(&bits, at + Word * 4, size);
  seen<Place, int(Word), Kind, Change>(bits);
  if constexpr (Change) __builtin_memcpy(at + Word * 4, &bits, size);
#endif
}

template <int Place, bool Change, class T, std::size_t... Word>
__device__ __forceinline__ void words(T& value, std::index_sequence<Word...>) {
  (word<Place, kind<T>(), int(sizeof(T)), Change, Word>((char*)(&value)), ...);
}

// Of what has many words a few: the first two, one in the middle and the last.
template <int Place, class T, std::size_t Count>
__device__ __forceinline__ void some(T& value) {
  words<Place, false>(value, std::index_sequence<0, 1, Count / 2 + 1, Count - 1>{});
}

// Numbers, arrays of numbers and class objects of up to a kilobyte.
template <int Place, class T> __host__ __device__ __forceinline__ void look(const T& value) {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(T) > 1024 || std::is_pointer_v<T> || std::is_empty_v<T>) return;
  else if constexpr (sizeof(T) > 32)
    some<Place, T, (sizeof(T) + 3) / 4>(const_cast<T&>(value));
  else
    words<Place, false>(const_cast<T&>(value), std::make_index_sequence<(sizeof(T) + 3) / 4>{});
#endif
}

// One number.
template <int Place, class T> __host__ __device__ __forceinline__ void number(const T& value) {
#ifdef __CUDA_ARCH__
  if constexpr (std::is_arithmetic_v<T>) {
    T copy = value;
    words<Place, false>(copy, std::make_index_sequence<(sizeof(T) + 3) / 4>{});
  }
#endif
}

// What may be written: it does not compile for anything else.
template <int Place, class T> __host__ __device__ __forceinline__ void change(T& value) {
  static_assert(!std::is_const_v<std::remove_all_extents_t<T>>);
#ifdef __CUDA_ARCH__
  words<Place, true>(value, std::make_index_sequence<(sizeof(T) + 3) / 4>{});
#endif
}

}  // namespace cubridge
#endif
