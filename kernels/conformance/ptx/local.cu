// A thread's own memory, and constants: items of every size, in rows of one, two and four.
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

__constant__ __align__(16) uint32_t constants[64] = {
    1, 0x3F800000, 2, 0x40000000, 3, 0x40400000, 4, 0xC0800000, 0x01020304, 0xFFFEFDFC, 7, 8};

#define CONSTANT(name, type, reg, load, suffix, count, group)                                     \
  extern "C" __global__ void name(const uint32_t*, uint32_t* target) {                            \
    const int t = threadIdx.x;                                                                    \
    load w[4] = {0, 0, 0, 0};                                                                     \
    const uint32_t* from = constants + t % 4 * 4;                                                 \
    asm volatile("{\n.reg .u64 p;\ncvta.to.const.u64 p, %4;\nld.const" suffix "." type " "         \
                 group("%0", "%1", "%2", "%3") ", [p];\n}"                                        \
                 : "+" reg(w[0]), "+" reg(w[1]), "+" reg(w[2]), "+" reg(w[3]) : "l"(from));       \
    for (int k = 0; k < 4; k++) reinterpret_cast<load*>(target + 8 * t)[k] = w[k];                \
  }
CONSTANT(const_b16, "u16", "h", uint16_t, "", 1, G1)
CONSTANT(const_b32_1, "b32", "r", uint32_t, "", 1, G1)
CONSTANT(const_b32_2, "b32", "r", uint32_t, ".v2", 2, G2)
CONSTANT(const_b32_4, "b32", "r", uint32_t, ".v4", 4, G4)
CONSTANT(const_f32_1, "f32", "f", float, "", 1, G1)
CONSTANT(const_f32_2, "f32", "f", float, ".v2", 2, G2)
CONSTANT(const_f32_4, "f32", "f", float, ".v4", 4, G4)
CONSTANT(const_b64_1, "b64", "l", uint64_t, "", 1, G1)
CONSTANT(const_b64_2, "b64", "l", uint64_t, ".v2", 2, G2)
CONSTANT(const_f64_1, "f64", "d", double, "", 1, G1)
