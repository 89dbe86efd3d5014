"""Reading ptxas, PTX and SASS: texts as CUDA 13.0 prints them."""

# ruff: noqa: E501 (the compiler's lines as they are)
from __future__ import annotations

import shutil

import pytest

from engine.build.machine_code.ptxas import (
    WarningKind,
    function_name,
    kernel_name,
    parse_threads,
    parse_uses,
    parse_warnings,
)
from engine.build.machine_code.sass import count_ptx, count_sass

LOG = """\
ptxas info    : (C7519) warpgroup.arrive is injected in around line 100 by compiler to allow use of registers in GMMA in function '_Z3serPfyy'
ptxas info    : (C7511) Potential Performance Loss: wgmma.mma_async instructions are serialized due to insufficient register resources for the wgmma pipeline in the function '_Z3serPfyy'
ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored; unable to determine register count at entry.
ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored; unable to determine register count at entry.
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z5spillPf' for 'sm_90a'
ptxas info    : Function properties for _Z5spillPf
    1200 bytes stack frame, 16 bytes spill stores, 24 bytes spill loads
ptxas info    : Used 254 registers, used 1 barriers, 1200 bytes cumulative stack size, 4096 bytes smem
ptxas info    : Compile time = 143.589 ms
ptxas info    : Compiling entry function '_Z3serPfyy' for 'sm_90a'
ptxas info    : Function properties for _Z3serPfyy
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 30 registers, used 0 barriers
ptxas info    : Function properties for _Z5otherf
    8 bytes stack frame, 8 bytes spill stores, 8 bytes spill loads
"""


def test_uses() -> None:
    spill, ser = parse_uses(LOG)
    assert (spill.symbol, spill.registers, spill.stack_bytes) == ("_Z5spillPf", 254, 1200)
    assert (spill.spill_store_bytes, spill.spill_load_bytes) == (16, 24)
    assert (spill.static_shared, spill.barriers) == (4096, 1)
    # What follows of another function is not this kernel's.
    assert (ser.registers, ser.stack_bytes, ser.spill_load_bytes) == (30, 0, 0)


def test_warnings_are_told_apart_and_named_once() -> None:
    found = [(w.kind, w.code) for w in parse_warnings(LOG)]
    assert found == [
        (WarningKind.OTHER, "C7519"),
        (WarningKind.SERIALISED_WGMMA, "C7511"),
        (WarningKind.IGNORED_SETMAXNREG, "C7508"),
    ]
    assert parse_warnings(LOG)[1].text.startswith("(C7511) Potential Performance Loss: wgmma")


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("_Z9flash_fwdI13__nv_bfloat16Li128EEv4Args", "flash_fwd"),
        ("_ZN8cubridge7combineILi4EEEvPf", "combine"),
        ("_ZN12_GLOBAL__N_15innerEPf", "inner"),
        ("_Z9attention14CUtensorMap_stS_PKfiif", "attention"),
        ("_ZN1a5flashE14CUtensorMap_st", "flash"),
        ("plain", "plain"),
    ],
)
def test_function_names(symbol: str, name: str) -> None:
    assert function_name(symbol) == name


@pytest.mark.skipif(shutil.which("c++filt") is None, reason="c++filt has the template's arguments")
def test_kernels_are_named_with_their_template_arguments() -> None:
    inner = "_ZN41_GLOBAL__N__586fc10e_9_driver_cu_52c2c2664attnILi32ELb1EEEvPKfS2_i"
    assert kernel_name(inner) == "attn<32, true>"
    assert kernel_name("_ZN2ns4attnI6__halfEEvPf") == "attn<__half>"
    assert kernel_name("_Z9attentionPKf") == "attention" and kernel_name("plain") == "plain"


def test_kernels_have_their_plain_names_without_that_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel_name.cache_clear()
    monkeypatch.setattr(shutil, "which", lambda tool: None)
    assert kernel_name("_Z5otherILi8EEvPf") == "other"


PTX = """\
.visible .entry _Z1aPf(
\t.param .u64 _Z1aPf_param_0
)
.maxntid 384, 1, 1
.minnctapersm 1
{
\tmma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f1}, {%r1}, {%r2}, {%f1};
\twgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f1}, %rd1, %rd2, p, 1, 1, 0, 0;
\tldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1}, [%r2];
\tcp.async.cg.shared.global [%r1], [%rd1], 16;
\tex2.approx.ftz.f32 %f1, %f2;
}
.visible .entry _Z1bPf(
\t.param .u64 _Z1bPf_param_0
)
{
\tst.local.f32 [%r1], %f1;
}
"""


def test_ptx() -> None:
    assert parse_threads(PTX) == {"_Z1aPf": 384}
    counts = count_ptx(PTX)
    assert counts["_Z1aPf"] == {"HMMA": 1, "HGMMA": 1, "LDSM": 1, "LDGSTS": 1, "MUFU": 1}
    assert counts["_Z1bPf"] == {"STL": 1}


def test_sass_of_both_disassemblers() -> None:
    nvdisasm = """\
//--------------------- .text._Z1aPf --------------------------
.text._Z1aPf:
        /*0000*/                   IMAD.MOV.U32 R1, RZ, RZ, c[0x0][0x28] ;
        /*0010*/              @!P0 HMMA.16816.F32.BF16 R8, R4, R2, R8 ;
        /*0020*/              @UP0 UTMALDG.4D [UR4], [UR6] ;
        /*0030*/                   HMMA.16816.F32.BF16 R8, R4, R2, R8 ;
.L_x_1:
//--------------------- .nv.info --------------------------
        /*0000*/                   HMMA.16816.F32 R8, R4, R2, R8 ;
"""
    assert count_sass(nvdisasm) == {"_Z1aPf": {"HMMA": 2, "IMAD": 1, "UTMALDG": 1}}
    cuobjdump = """\
\t\tFunction : _Z1aPf
\t.headerflags\t@"EF_CUDA_SM80 EF_CUDA_VIRTUAL_SM(EF_CUDA_SM80)"
        /*0000*/                   LDL R1, [R2] ;                     /* 0x00000a00ff017624 */
                                                                      /* 0x000fe400078e00ff */
\t\tFunction : _Z1bPf
        /*0000*/                   EXIT ;                             /* 0x00000a00ff017624 */
"""
    assert count_sass(cuobjdump) == {"_Z1aPf": {"LDL": 1}, "_Z1bPf": {"EXIT": 1}}


def test_a_block_of_inline_assembly_does_not_end_a_kernel() -> None:
    text = """
.visible .entry declared(
    .param .u64 declared_param_0
);
.visible .entry first(
    .param .align 8 .b8 first_param_0[264]
)
.maxntid 128, 1, 1
{
    // begin inline asm
    {
  .reg .pred p;
  @p ld.global.f32 %f1, [%rd1];
}
    // end inline asm }}
    mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1, %f2}, {%r1}, {%r2}, {%f1, %f2};
    ret;
}
.visible .entry second()
{
    ld.local.u32 %r1, [%rd1];
}
"""
    assert count_ptx(text) == {"first": {"HMMA": 1}, "second": {"LDL": 1}}
