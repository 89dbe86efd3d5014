// Primitives for Hopper (sm_90a).
#pragma once

#include "args.cuh"
#include "gmem.cuh"
#include "lines.cuh"
#include "lists.cuh"
#include "scalar.cuh"
#include "sm90_async.cuh"
#include "sm90_host.cuh"
#include "sm90_shared.cuh"
#include "sm90_tile.cuh"
#include "sm90_wgmma.cuh"
#include "tile.cuh"
#include "work.cuh"
