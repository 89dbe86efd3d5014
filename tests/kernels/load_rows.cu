// Copies of ranges of rows, each by the conformance kernel of tma_load_rows: the rows of `v` but for
// MARGIN of them at either end are the tensor, box number `k` of `o` is that of the k-th case.
#include "../../kernels/conformance/sm90.cu"

constexpr int ROWS = 64;
constexpr int MARGIN = 70;

template <int COLS>
cudaError_t copy_each(const bf16* v, bf16* o, int B, int Hkv, int Nk, int D) {
  const int rows = Nk - 2 * MARGIN;
  Case c{};
  c.tensor.data = const_cast<bf16*>(v) + MARGIN * Hkv * D;
  const long long strides[4] = {1ll * Nk * Hkv * D, D, 1ll * Hkv * D, 1};
  for (int d = 0; d < 4; ++d) c.tensor.stride[d] = strides[d];
  const int extent[4] = {B, Hkv, rows, D};
  for (int d = 0; d < 4; ++d) c.extent[d] = extent[d];
  c.corner[2] = Hkv - 1;
  c.corner[3] = B - 1;
  int number = 0;
  for (int first : {0, 128}) {
    const int places[] = {0, first + 1, first + 45, rows};
    c.corner[1] = first;
    for (int begin : places) {
      for (int end : places) {
        c.r0 = begin;
        c.c0 = end < rows ? end : rows;
        c.out = o + number++ * ROWS * COLS;
        const int status = load_rows<bf16, ROWS, COLS>(c);
        if (status != cudaSuccess) return static_cast<cudaError_t>(status);
      }
    }
  }
  return cudaSuccess;
}

cudaError_t launch(const bf16* v, bf16* o, int B, int Hkv, int Nk, int D, int Dv) {
  return Dv == 64 ? copy_each<64>(v, o, B, Hkv, Nk, D) : copy_each<128>(v, o, B, Hkv, Nk, D);
}
