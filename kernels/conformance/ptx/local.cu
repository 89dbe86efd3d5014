// A thread's own memory: items of every size, in rows of one, two and four.
#include <cstdint>

#define LOCAL(name, type, reg, load, suffix, count, group, ...)                                   \
  extern "C" __global__ void name(const uint32_t* source, uint32_t* target) {                     \
    const int t = threadIdx.x;                                                                    \
    const load* from = reinterpret_cast<const load*>(source + 8 * t);                             \
    load v[4] = {from[0], from[1], from[2], from[3]}, w[4] = {0, 0, 0, 0};                        \
    asm volatile("{\n.local .align 16 .b8 held_" #name "[64];\n.reg .u64 p, q;\n"                 \
                 "mov.u64 p, held_" #name ";\nand.b64 q, %8, 1;\nshl.b64 q, q, 5;\n"              \
                 "add.u64 p, p, q;\n"                                                             \
                 "st.local" suffix "." type " [p], " group("%4", "%5", "%6", "%7") ";\n"          \
                 "ld.local" suffix "." type " " group("%0", "%1", "%2", "%3") ", [p];\n}"         \
                 : "+" reg(w[0]), "+" reg(w[1]), "+" reg(w[2]), "+" reg(w[3])                     \
                 : reg(v[0]), reg(v[1]), reg(v[2]), reg(v[3]), "l"(uint64_t(t)));                 \
    for (int k = 0; k < 4; k++) reinterpret_cast<load*>(target + 8 * t)[k] = w[k];                \
  }
#define G1(a, b, c, d) a
#define G2(a, b, c, d) "{" a ", " b "}"
#define G4(a, b, c, d) "{" a ", " b ", " c ", " d "}"
#define SIZES(n, suffix, G)                                                                       \
  LOCAL(b16_##n, "b16", "h", uint16_t, suffix, n, G)                                              \
  LOCAL(b32_##n, "b32", "r", uint32_t, suffix, n, G)                                              \
  LOCAL(f32_##n, "f32", "f", float, suffix, n, G)
SIZES(1, "", G1)
SIZES(2, ".v2", G2)
SIZES(4, ".v4", G4)
LOCAL(b64_1, "b64", "l", uint64_t, "", 1, G1)
LOCAL(b64_2, "b64", "l", uint64_t, ".v2", 2, G2)
LOCAL(f64_1, "f64", "d", double, "", 1, G1)
LOCAL(f64_2, "f64", "d", double, ".v2", 2, G2)
