// Register tiles: values spread over the threads of a block (or a warpgroup) as a layout says. A
// layout (MmaAcc in sm80.cuh, an accumulator of wgmma likewise) is a type with
//
//   SIZE                      elements that one thread holds, numbered e = 0 .. SIZE - 1
//   Rows, Cols                the layouts of its row and column vectors: types with SIZE, AXIS, and
//                             index(slot), the row or column of this thread's slot in the tile
//   row_slot(e), col_slot(e)  the slots that element e lies in (constant expressions); elements
//                             2 k and 2 k + 1 lie in one row
//
// where the four lanes of a quad (lanes 4 q .. 4 q + 3 of a warp) hold all columns of their rows, as
// the accumulators of mma and wgmma do (PTX ISA: "Matrix fragments for mma.m16n8k16").
#pragma once

namespace cubridge {

// The values of one thread. `E` is float, or int or bool where they were loaded as such.
template <typename Layout, typename E = float>
struct Tile {
  E value[Layout::SIZE];
};

enum class Axis { ROW, COL };

// One value per row of Layout, held by each of the four lanes that share the row; one per column,
// held by every thread that has an element of the column. Accumulators of one height have the same
// row vectors, those of one width the same column vectors.
template <typename Layout>
using RowOf = typename Layout::Rows;
template <typename Layout>
using ColOf = typename Layout::Cols;

}  // namespace cubridge
