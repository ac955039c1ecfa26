# Tycho. What to say to make:
#
#   make                     the program build/tycho and the library build/libtycho.so
#   make torture             allocations and calls of the system that fail, one after the other (MOST=100: so many each)
#   make fuzz TIME=60        damaged bytes for every reader, so many seconds each; needs clang
#   make coverage            what of native/ runs in all of these, file by file
#   make test                the C tests of spec/native, then the specs (TEST="-t slow" passes words on to busted)
#   make check               rooms, names, sizes, style, luacheck, LDoc, warnings of gcc and clang
#   make gpu-cost            launches and bytes of device memory of operators and training steps, beside the ideal: doc/gpu.md
#   make cudasim             libraries that stand in for CUDA's, for tests without a GPU: build/cudasim
#   make test-gpu            a part of the specs as gpu(0), on those libraries (GPU_SPECS=spec: all)
#   make bench | make doc    timings | guides, classes and operators as HTML, the picture of the rooms: in build/doc
#   make install PREFIX=...  the program, the library, modules, scripts, pages, header, pkg-config file, man pages,
#                            completion of shells, definitions for editors (DESTDIR= is honoured)
#   make uninstall PREFIX=... | make clean
#   make dist                a release in build/dist: archives, and a rock that LuaRocks installs without a network
#   make deb | rpm | arch    packages of the release in build/deb, build/rpm, build/arch
#   make arm64 | arm64-test  for aarch64, by Debian's cross compiler: in build/arm64 | a part of the tests, under qemu;
#                            make arm64-sysroot fetches the libraries that they need
#   make library             definitions for the Lua language server, the interface as JSON: in build/library
#
# MODE=release|debug|asan|tsan picks the flags and its own folder; BUILD=folder builds elsewhere; CC=gcc|clang.
# V=1 shows whole commands. WERROR=1 makes warnings errors. CFLAGS, LDFLAGS are the user's and come last. Objects depend on their headers and on the other flags they were made with.
#
# For packages: PACKAGE_CFLAGS takes the place of -O2 -g1. SONAME=libtycho.so.0 names the library for the system's loader
# and installs it in LIBDIR; without it the library is beside the modules, where RUNPATH looks for it.

MODE   ?= release
BUILD  ?= build$(if $(filter-out release,$(MODE)),/$(MODE))
CC      = gcc
PREFIX ?= /usr/local
LUAJIT ?= luajit
TEST   ?=

# -- flags --------------------------------------------------------------------------------------------------------

WARN   = -Wall -Wextra -Wshadow -Wstrict-prototypes -Wno-unused-parameter -Wno-missing-field-initializers -Wno-pass-failed \
         -Werror=implicit-function-declaration
CFLAGS_release = $(or $(PACKAGE_CFLAGS),-O2 -g1)
CFLAGS_debug   = -O0 -g -DTY_CHECK_PASSES
# -g1 gives reports their lines in three quarters of the compiler's time; CFLAGS=-g: a debugger's variables
CFLAGS_asan    = -O1 -g1 -DTY_CHECK_PASSES -DPLAN_STEPS=1000000 -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
CFLAGS_tsan    = -O1 -g1 -DPLAN_STEPS=1000000 -fsanitize=thread
# readers are fed by libFuzzer (spec/fuzz)
CFLAGS_fuzz    = -O1 -g1 -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
# calls through a gate fail where a test wants it (native/base/gate.h)
CFLAGS_torture = -O1 -g1 -DTY_TORTURE
WRAP_torture   = -Wl,--wrap=fopen,--wrap=fopen64
# counts what runs, with the doors of torture in it; not in the loops of an instruction set
CFLAGS_coverage = -O0 -g -DTY_TORTURE -DTY_COUNTS --coverage -fprofile-abs-path
WRAP_coverage   = $(WRAP_torture)
ALL    = -std=c11 -D_GNU_SOURCE -Inative -I$(BUILD) -fPIC -fvisibility=hidden -fno-math-errno -fno-trapping-math -ffp-contract=off \
         $(WARN) $(if $(WERROR),-Werror) $(CFLAGS_$(MODE)) $(CFLAGS)

# one short line per file; V=1: the command itself
Q    := $(if $(V),,@)
say   = $(if $(V),,@$(info $()  $(1) $(2)))

# -- sources ------------------------------------------------------------------------------------------------------

# every .c of native; those in a folder isa are compiled once per instruction set; those called *onednn* need oneDNN
NATIVE := $(sort $(shell find native -name '*.c'))
ISA    := $(foreach f,$(NATIVE),$(if $(findstring /isa/,$(f)),$(f)))
# for tiles alone (AMX)
TILES  := $(filter %/isa/tiles.c,$(ISA))
ISA    := $(filter-out $(TILES),$(ISA))
ONEDNN := $(foreach f,$(NATIVE),$(if $(findstring onednn,$(notdir $(f))),$(f)))
MPI    := native/comm/mpi_shim.c
SRC    := $(filter-out $(ISA) $(TILES) $(ONEDNN) $(MPI),$(NATIVE))
OPS    := $(filter native/operators/%,$(shell grep -l '^const struct op op_' $(SRC)))
# the processor that the compiler makes code for
TARGET := $(firstword $(subst -, ,$(shell $(CC) -dumpmachine)))
ISAS_x86_64  = baseline avx2 avx512
ISAS_aarch64 = baseline neon
ISAS := $(or $(ISAS_$(TARGET)),baseline)
ISA_baseline = -DISA=baseline
ISA_avx2     = -DISA=avx2 -mavx2 -mfma -mf16c
ISA_avx512   = -DISA=avx512 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx2 -mfma -mf16c -mprefer-vector-width=512
ISA_neon     = -DISA=neon -DTY_NEON
# files narrow.c once more, with the instructions that multiply bfloat16 and 8-bit integers
ISA_avx512_narrow = $(subst =avx512,=avx512_narrow,$(ISA_avx512)) -mavx512bf16 -mavx512vnni
ISA_avx512_tiles  = $(subst =avx512_narrow,=avx512_tiles,$(ISA_avx512_narrow)) -DTY_TILES
ISA_neon_dot      = -DISA=neon_dot -DTY_NEON -march=armv8.2-a+dotprod
ISA_neon_narrow   = -DISA=neon_narrow -DTY_NEON -march=armv8.2-a+dotprod+bf16
NARROWS_x86_64    = avx512_narrow avx512_tiles
NARROWS_aarch64   = neon_dot neon_narrow
NARROWS := $(NARROWS_$(TARGET))
TILED_x86_64      = avx512_tiles
NARROW  := $(filter %/isa/narrow.c,$(ISA))

# threads of a compiler that has no OpenMP, or none that the thread sanitizer knows, are our own
OPENMP := $(if $(filter tsan,$(MODE)),,$(shell printf '\043include <omp.h>\n' | $(CC) -fopenmp -x c - -fsyntax-only 2>/dev/null && echo -fopenmp))
ifeq ($(OPENMP),)
ALL += -DTY_NO_OPENMP
endif

# $(call found,library,header,condition): 1 if a program that includes the header links with the library, and the condition holds of it
found = $(shell printf '\043include <$(2)>\n\043if !($(3))\n\043error another version\n\043endif\nint main(void){return 0;}' | $(CC) -x c - -o /dev/null -l$(1) 2>/dev/null && echo 1)

# the two interfaces of oneDNN that native/kernel/onednn_interface.c knows
ONEDNN_VERSIONS = DNNL_VERSION_MAJOR == 3 || DNNL_VERSION_MAJOR == 2 && DNNL_VERSION_MINOR >= 5

ifeq ($(call found,dnnl,oneapi/dnnl/dnnl.h,$(ONEDNN_VERSIONS)),1)
SRC  += $(ONEDNN)
ALL  += -DTY_DNNL
LIBS += -ldnnl
endif
LIBS += -ljpeg -lpng -lz -lopenblas -lm -lpthread -ldl

PROGRAM := $(sort $(wildcard runtime/*.c))
TESTS   := $(sort $(wildcard spec/native/*.c))
LUA     := $(sort $(shell find runtime/lua -name '*.lua'))

# A rock is built once: it is compiled in units of several files, without warnings (UNITS=: file by file)
UNITS ?= $(if $(filter rock install-rock,$(MAKECMDGOALS)),1)
PLAIN := $(SRC)
ifneq ($(UNITS),)
include packaging/units.mk
UNIT_FILES = $(filter $(SRC),$(UNIT_$(1)))
UNIT_SRC  := $(UNIT_NAMES:%=$(BUILD)/units/%.c)
PLAIN     := $(filter-out $(foreach u,$(UNIT_NAMES),$(UNIT_$(u))),$(SRC))
ALL       += -I. -w
endif

# what takes the compiler longest comes first, so that no core waits for it at the end
OBJ      := $(foreach i,$(ISAS),$(ISA:%.c=$(BUILD)/%.$(i).o)) \
            $(foreach i,$(NARROWS),$(NARROW:%.c=$(BUILD)/%.$(i).o)) \
            $(foreach i,$(TILED_$(TARGET)),$(TILES:%.c=$(BUILD)/%.$(i).o)) \
            $(UNIT_SRC:.c=.o) $(PLAIN:%.c=$(BUILD)/%.o)
TEST_BIN := $(TESTS:%.c=$(BUILD)/%)

# a library of its own, which knows one implementation of MPI
MPICC  ?= $(shell command -v mpicc)
MPI_LIBRARY := $(if $(MPICC),$(BUILD)/libtycho_mpi.so)

all: $(BUILD)/libtycho.so $(BUILD)/tycho $(MPI_LIBRARY)

# -- the library --------------------------------------------------------------------------------------------------

$(BUILD)/libtycho.so: $(OBJ)
	$(call say,LD ,$@)
	$(Q)$(CC) $(ALL) $(OPENMP) -shared -Wl,-z,nodelete -Wl,-Bsymbolic-functions $(SONAME:%=-Wl,-soname,%) $(LDFLAGS) \
	  -o $@.tmp $(OBJ) $(LIBS) && mv $@.tmp $@
	$(if $(SONAME),@ln -sf libtycho.so $(BUILD)/$(SONAME))

$(BUILD)/libtycho.a: $(OBJ)
	@rm -f $@
	$(call say,AR ,$@)
	$(Q)$(AR) rcs $@ $(OBJ)

$(BUILD)/libtycho_mpi.so: $(MPI) native/comm/comm.h native/base/base.h
	@mkdir -p $(dir $@)
	$(call say,LD ,$@)
	$(Q)OMPI_CC=$(CC) MPICH_CC=$(CC) $(MPICC) $(ALL) -shared $(LDFLAGS) -o $@.tmp $< -lpthread && mv $@.tmp $@

# a line per file of operators; written again when the list changes, so that a removed or renamed file is forgotten
$(BUILD)/ops.inc: FORCE
	@mkdir -p $(dir $@)
	@for f in $(notdir $(OPS:.c=)); do echo "OP($$f)"; done > $@.tmp && (cmp -s $@.tmp $@ || mv $@.tmp $@)

# whether warnings stop the compiler makes no other objects; the folders of all objects are made here
FLAGS = $(CC) $(filter-out -Werror,$(ALL)) $(OPENMP) $(LIBS)
$(BUILD)/flags: FORCE
	@mkdir -p $(sort $(dir $@ $(OBJ) $(PROGRAM:%=$(BUILD)/%) $(TESTS:%=$(BUILD)/%)))
	@echo '$(FLAGS)' | cmp -s - $@ || echo '$(FLAGS)' > $@

$(BUILD)/%.o: %.c $(BUILD)/flags | $(BUILD)/ops.inc
	$(call say,CC ,$<)
	$(Q)$(CC) $(ALL) $(if $(findstring base/parallel,$<),$(OPENMP)) -MMD -MP -c $< -o $@

# Units of rooms that have no loops over elements, and that steps on a CPU do not run, take -O1, which compiles in two thirds of the
# time: $(call unit_opt,unit)
COLD = cuda graph op pass
unit_opt = $(if $(filter $(COLD:%=%_%),$(1)),-O1 $(CFLAGS))

# names of the files of a unit change with packaging/units.mk, their text by what the compiler writes of dependencies
$(UNIT_SRC): $(BUILD)/units/%.c: packaging/units.mk packaging/unit.sh | $(BUILD)/flags
	@sh packaging/unit.sh $(call UNIT_FILES,$*) > $@

$(UNIT_SRC:.c=.o): %.o: %.c $(BUILD)/flags | $(BUILD)/ops.inc
	$(call say,CC ,$(call UNIT_FILES,$(notdir $*)))
	$(Q)$(CC) $(ALL) $(call unit_opt,$(notdir $*)) -MMD -MP -c $< -o $@

# texts of kernels are taken in as they stand
FAMILY := native/cuda/family.c
$(FAMILY:%.c=$(BUILD)/%.o) $(foreach u,$(UNIT_NAMES),$(if $(filter $(FAMILY),$(UNIT_$(u))),$(BUILD)/units/$(u).o)): \
  $(wildcard native/cuda/kernels/* native/kernel/element/*) \
  native/base/philox.h native/base/laws.h

# instrumented products take compilers minutes as soon as they optimize; readers, which fuzz feeds, need none
ISA_OPT_release  = -O3
ISA_OPT_fuzz     = -O0
ISA_OPT_coverage = -O2 -fno-profile-arcs -fno-test-coverage
# Products are written in vectors, and gain nothing by the rest of -O3, which takes GCC a quarter longer, reductions of bytes nothing
# by its search for vectors; x86-64 without AVX2 is processors from before 2013 and few later ones. $(call isa_opt,set,file)
ISA_OPT_less = -O2 -fvect-cost-model=dynamic -fpeel-loops -funswitch-loops
# A rock is built where it runs, and a processor with AVX2 never runs the code for x86-64 without it. These files take 7.6 s to compile
# instead of 11.4 at -O1 alone (Zen 4, 2026-11-29).
ISA_OPT_others = -O1 -fno-tree-dominator-opts -fno-ivopts
HAS_AVX2 := $(if $(UNITS),$(shell grep -qw avx2 /proc/cpuinfo && echo 1))
isa_opt = $(if $(and $(HAS_AVX2),$(filter release-x86_64-baseline,$(MODE)-$(TARGET)-$(1))),$(ISA_OPT_others),$(call isa_full,$(1),$(2)))
isa_full = $(if $(findstring clang,$(CC))$(filter-out release,$(MODE)),$(ISA_OPT_$(MODE)),$(if $(filter %/bytes.c,$(2)),-O2,$(if \
  $(filter x86_64-baseline,$(TARGET)-$(1))$(findstring /gemm/,$(2)),$(ISA_OPT_less),-O3)))
define isa_rule
$(BUILD)/%.$(1).o: %.c $(BUILD)/flags
	$$(call say,CC ,$$< ($(1)))
	$(Q)$(CC) $(ALL) $$(call isa_opt,$(1),$$<) $(ISA_$(1)) $(CFLAGS) -MMD -MP -c $$< -o $$@
endef
$(foreach i,$(ISAS) $(NARROWS),$(eval $(call isa_rule,$(i))))

# -- the program: LuaJIT linked statically and exported to Lua's C modules; the library beside it or in the tree ------

LUAJIT_DIR = $(shell pkg-config --variable=libdir luajit)
RUNPATH ?= $$ORIGIN:$$ORIGIN/../lib/lua/5.1/tycho
$(BUILD)/runtime/%.o: ALL += $(shell pkg-config --cflags luajit)

$(BUILD)/tycho: $(PROGRAM:%.c=$(BUILD)/%.o) $(BUILD)/libtycho.so
	@ln -sfn "$$(realpath --relative-to='$(BUILD)' runtime/lua)" $(BUILD)/lua
	$(call say,LD ,$@)
	$(Q)$(CC) $(ALL) -Wl,-E,--allow-shlib-undefined $(LDFLAGS) -o $@.tmp $(PROGRAM:%.c=$(BUILD)/%.o) $(LUAJIT_DIR)/libluajit-5.1.a \
	  $(WRAP_$(MODE)) -L$(BUILD) -ltycho \
	  $(RUNPATH:%='-Wl,-rpath,%') -ledit -lm -ldl && mv $@.tmp $@

-include $(OBJ:.o=.d) $(PROGRAM:%.c=$(BUILD)/%.d) $(TEST_BIN:=.d)

# -- tests --------------------------------------------------------------------------------------------------------
# C tests are linked with the objects themselves, so that they reach inside. A Lua that loads a sanitized library needs
# the sanitizer's own library first; leaks of an interpreter that leaves without closing its state mean nothing. The one
# for threads would be in every shell that a spec starts, and does not bear it: there the program, which has it, runs specs.

SANITIZER = $(if $(filter asan,$(MODE)),$(shell $(CC) -print-file-name=libasan.so),$(if $(filter tsan,$(MODE)),$(shell $(CC) -print-file-name=libtsan.so)))
TEST_ENV  = SANITIZER='$(SANITIZER)' TYCHO_LIB='$(abspath $(BUILD))/libtycho.so' TYCHO_PROGRAM='$(abspath $(BUILD))/tycho' TYCHO_VERIFY=1 \
  $(if $(filter tsan,$(MODE)),BUSTED='$(abspath $(BUILD))/tycho $(shell command -v busted) --ignore-lua')

$(BUILD)/spec/native/%: spec/native/%.c $(BUILD)/libtycho.a
	@mkdir -p $(dir $@)
	@rm -f $@
	$(call say,LD ,$@)
	$(Q)$(CC) $(ALL) $(OPENMP) -MMD -MP -MF $@.d -MT $@ $(LDFLAGS) -o $@ $< -Wl,--whole-archive $(BUILD)/libtycho.a -Wl,--no-whole-archive $(LIBS)

# a C test that does not compile is one failure, not the end
test: all
	-@$(MAKE) -k --no-print-directory $(TEST_BIN)
	@$(TEST_ENV) sh scripts/dev/test.sh $(TEST_BIN) -- $(TEST)

test-native:
	-@$(MAKE) -k --no-print-directory $(TEST_BIN)
	@$(TEST_ENV) sh scripts/dev/test.sh $(TEST_BIN)

# -- checks -------------------------------------------------------------------------------------------------------

check: check-source check-lua check-comments check-compilers check-units check-musl check-onednn check-cuda check-sass

check-source: objects
	$(LUAJIT) scripts/dev/check.lua $(BUILD)

check-lua:
	luacheck --no-cache -q runtime/lua scripts spec

# LDoc reads what comments say of parameters; the pages are made without it
check-comments:
	ldoc -q --fatalwarnings -d $(BUILD)/ldoc .

check-compilers:
	$(if $(WERROR),,$(MAKE) CC=gcc BUILD=$(BUILD)/gcc WERROR=1 objects)
	$(MAKE) CC=clang BUILD=$(BUILD)/clang WERROR=1 syntax

# what a compiler says of the sources without making objects of them
syntax: $(BUILD)/ops.inc
	@printf '%s\n' $(SRC) $(PROGRAM) $(TESTS) | xargs -P 2 -n 16 $(CC) $(ALL) $(OPENMP) $(shell pkg-config --cflags luajit) -fsyntax-only
	@$(foreach i,$(ISAS),$(CC) $(ALL) $(ISA_OPT_$(MODE)) $(ISA_$(i)) -fsyntax-only $(ISA) &&) true

# Another C library (Debian's musl-tools): what of native/ needs glibc is an error. The headers of the libraries that we use are
# those of the system, reached by links; MPI and oneDNN are not looked at.
MUSL_HEADERS = $(BUILD)/musl
check-musl: $(BUILD)/ops.inc
	@if command -v musl-gcc > /dev/null; then set -e; \
	  rm -rf $(MUSL_HEADERS); mkdir -p $(MUSL_HEADERS); \
	  for f in $$(printf '\043include <zlib.h>\n\043include <png.h>\n\043include <stdio.h>\n\043include <jpeglib.h>\n\043include <jerror.h>\n\043include <cblas.h>\n' \
	      | $(CC) -M -x c - | tr ' ' '\n' | grep -E '/(zlib|zconf|png|pngconf|pnglibconf|jpeglib|jconfig|jmorecfg|jerror|cblas|openblas_config)\.h$$'); \
	    do ln -s $$f $(MUSL_HEADERS)/; done; \
	  echo "musl: native/"; \
	  printf '%s\n' $(filter-out $(ONEDNN),$(SRC)) | xargs -P 2 -n 16 musl-gcc $(filter-out -DTY_DNNL,$(ALL)) -DTY_NO_OPENMP -Werror \
	    -isystem $(MUSL_HEADERS) -fsyntax-only; \
	  $(foreach i,$(ISAS),musl-gcc $(filter-out -DTY_DNNL,$(ALL)) $(ISA_$(i)) -Werror -isystem $(MUSL_HEADERS) -fsyntax-only $(ISA);) \
	else echo "musl: not compiled, no musl-gcc (Debian's musl-tools)"; fi

# the division of native/ into units that a rock compiles: written, checked
UNITS_OF = '$(BUILD)/units' '$(CC) $(filter-out -Werror,$(ALL)) $(OPENMP)' $(filter-out native/base/parallel.c,$(SRC))
units: $(BUILD)/ops.inc
	$(LUAJIT) scripts/dev/units.lua write packaging/units.mk $(UNITS_OF)

check-units: $(BUILD)/ops.inc
	@$(LUAJIT) scripts/dev/units.lua check packaging/units.mk $(UNITS_OF)

# both interfaces of oneDNN, whichever is installed
check-onednn:
	@set -e; for v in 2 3; do echo "oneDNN $$v"; \
	  $(CC) $(ALL) -Werror -DTY_DNNL -Ispec/stub -DDNNL_VERSION_MAJOR=$$v -fsyntax-only \
	    $(ONEDNN) native/device/platform.c; done

# our kernels for GPUs, where there is a toolkit, which nothing else needs
NVCC ?= $(firstword $(shell command -v nvcc) $(wildcard /usr/local/cuda/bin/nvcc))
check-cuda:
	@$(if $(NVCC),,echo "kernels for GPUs: not compiled, no nvcc")
	@$(if $(NVCC),set -e; mkdir -p $(BUILD); for f in native/cuda/kernels/*.cu; do for a in 80 90 100; do \
	  echo "NVCC $$f (sm_$$a)"; $(NVCC) -std=c++17 --fmad=false -Inative -Werror all-warnings -arch=sm_$$a \
	  -cubin -o $(BUILD)/check.cubin $$f; done; done)

# -- aarch64 ------------------------------------------------------------------------------------------------------

arm64:
	@sh scripts/dev/arm64.sh make all

arm64-test:
	@sh scripts/dev/arm64.sh test

arm64-sysroot:
	@sh scripts/dev/arm64.sh sysroot

# the sources that the specs NVRTC_SPECS make (spec: all, for hours), through the real NVRTC, which needs no GPU;
# no cubins, which would keep sources away that earlier runs had
NVRTC_SPECS ?= spec/cuda/stand_in_spec.lua spec/cuda/buckets_spec.lua
check-nvrtc: all cudasim
	@rm -rf $(BUILD)/sources && mkdir -p $(BUILD)/sources
	@CUDASIM_SOURCES='$(abspath $(BUILD))/sources' $(MAKE) --no-print-directory test-gpu GPU_SPECS='$(NVRTC_SPECS)' CUBINS= \
	  && luajit scripts/dev/nvrtc_check.lua $(BUILD)/sources

# the graphs that these specs make, through the real cuDNN, which needs no GPU either
CUDNN_SPECS ?= $(NVRTC_SPECS) spec/cuda/layout_spec.lua spec/cuda/convolution_spec.lua
check-cudnn: all cudasim
	@rm -rf $(BUILD)/graphs && mkdir -p $(BUILD)/graphs
	@CUDASIM_GRAPHS='$(abspath $(BUILD))/graphs' $(MAKE) --no-print-directory test-gpu GPU_SPECS='$(CUDNN_SPECS)' \
	  && luajit scripts/dev/cudnn_check.lua $(BUILD)/graphs

objects: $(OBJ) $(PROGRAM:%.c=$(BUILD)/%.o) $(TESTS:%.c=$(BUILD)/%.o)

# -- CUDA without a GPU: libraries of our own, which TYCHO_CUDA_PATH=$(BUILD)/cudasim names (spec/cudasim/README.md) --

# registers, spills and width of loads of the hot kernels, by the real NVRTC and cuobjdump
SASS_ARCHITECTURE ?= 90
check-sass:
	@command -v cuobjdump >/dev/null || { echo "kernels' SASS: not looked at, no cuobjdump on the PATH"; exit 0; }; \
	  set -e; $(MAKE) --no-print-directory all cudasim; \
	  d='$(abspath $(BUILD))/sass'; rm -rf $$d; mkdir -p $$d/keys $$d/images; \
	  $(TEST_ENV) TYCHO_CUDA_PATH='$(abspath $(BUILD))/cudasim' TYCHO_CACHE=$$d/keys CUDASIM_DRY=1 \
	  $(BUILD)/tycho scripts/dev/sass.lua --ask; \
	  $(BUILD)/tycho scripts/dev/cubins.lua compile $$d/keys $$d/images $(SASS_ARCHITECTURE); \
	  $(BUILD)/tycho scripts/dev/sass.lua $$d/images

cudasim:
	@$(MAKE) --no-print-directory -f spec/cudasim/Makefile OUT=$(abspath $(BUILD))/cudasim

cudasim-%:
	@$(MAKE) --no-print-directory -f spec/cudasim/Makefile OUT=$(abspath $(BUILD))/cudasim $*

# The specs as gpu(0): those of GPU_SPECS, or GPU_SPECS=spec; on the stand-in, unless TYCHO_CUDA_PATH says where CUDA is.
GPU_SPECS ?= $(shell sh scripts/dev/gpu_check.sh --list specs)
TYCHO_CUDA_PATH ?= $(abspath $(BUILD))/cudasim
CUBINS          ?= $(abspath $(BUILD))/cubins
test-gpu: all $(if $(filter $(abspath $(BUILD))/cudasim,$(TYCHO_CUDA_PATH)),cudasim)
	@$(TEST_ENV) TYCHO_TEST_DEVICE='gpu(0)' TYCHO_CUDA_PATH='$(TYCHO_CUDA_PATH)' TYCHO_CACHE='$(CUBINS)' \
	  CUDASIM_GUARD=0 CUDASIM_STREAMS=eager CUDASIM_SPOIL=4096 sh scripts/dev/test.sh --files $(GPU_SPECS)

# every allocation and every call of the system fails once: native/base/gate.h
MOST ?= all
torture:
	@$(MAKE) --no-print-directory MODE=torture build/torture/tycho build/torture/libtycho.so
	build/torture/tycho spec/torture/faults.lua $(abspath build/torture)/libtycho.so $(MOST)
	TYCHO_PROGRAM=build/torture/tycho build/torture/tycho spec/torture/luajit.lua $(abspath build/torture)/libtycho.so
	TYCHO_PROGRAM=build/torture/tycho build/torture/tycho spec/torture/limits.lua $(if $(filter all,$(MOST)),40,1)

# each reader that takes bytes from strangers is fed damaged ones: spec/fuzz
TIME ?= 60
FUZZ := $(notdir $(basename $(wildcard spec/fuzz/*.c)))

$(BUILD)/fuzz/%: spec/fuzz/%.c $(BUILD)/libtycho.a
	@mkdir -p $(dir $@)
	$(call say,LD ,$@)
	$(Q)$(CC) $(ALL) $(OPENMP) -fsanitize=fuzzer $(LDFLAGS) -o $@ $< -Wl,--whole-archive $(BUILD)/libtycho.a \
	  -Wl,--no-whole-archive $(LIBS)

fuzz: all
	@if command -v clang > /dev/null; then \
	  $(MAKE) --no-print-directory MODE=fuzz CC=clang $(FUZZ:%=build/fuzz/fuzz/%) && \
	  sh spec/fuzz/run.sh $(BUILD)/tycho build/fuzz/fuzz $(TIME) $(FUZZ); \
	else echo "readers in C: not fuzzed, no clang"; sh spec/fuzz/run.sh $(BUILD)/tycho build/fuzz/fuzz $(TIME); fi

# What of native/ and of the program runs in the C tests, the specs COVERAGE_SPECS, on the stand-in too, under torture and over the
# corpus of fuzz; fails below so many per cent. An hour of two cores.
COVERAGE_SPECS ?= $(filter-out spec/scripts/% spec/doc/% %/kills_spec.lua %/growth_spec.lua %/variants_spec.lua, \
  $(sort $(wildcard spec/*/*_spec.lua)))
COVERAGE_LEAST ?= 95 90
COVERAGE_FAULTS ?= 300
COVERAGE_CALLS ?= 160000
COVERAGE_GPU   ?= spec/executor $(patsubst %,spec/operators/%_spec.lua,alone edges indices reduce rows contrib_math detection sampler updates linalg)

$(BUILD)/replay/%: spec/fuzz/%.c spec/fuzz/replay/replay.c $(BUILD)/libtycho.a
	@mkdir -p $(dir $@)
	$(call say,LD ,$@)
	$(Q)$(CC) $(ALL) $(OPENMP) $(LDFLAGS) -o $@ $< spec/fuzz/replay/replay.c -Wl,--whole-archive $(BUILD)/libtycho.a \
	  -Wl,--no-whole-archive $(LIBS)

replay: $(FUZZ:%=$(BUILD)/replay/%)
	@for f in $(FUZZ); do $(BUILD)/replay/$$f spec/fuzz/corpus/$$f $(BUILD)/../fuzz/fuzz/corpus/$$f; done

coverage-runs: all
	-@$(MAKE) -k --no-print-directory $(TEST_BIN) replay
	-@$(TEST_ENV) TYCHO_FUZZ=$(COVERAGE_CALLS) sh scripts/dev/test.sh $(TEST_BIN) --files $(COVERAGE_SPECS)
	-@$(MAKE) --no-print-directory test-gpu GPU_SPECS='$(COVERAGE_GPU)'
	-TYCHO_CPU=baseline $(BUILD)/spec/native/gemm_test
	-@$(TEST_ENV) sh scripts/dev/test.sh -- -r slow spec/cuda/every_operator_spec.lua spec/cuda/older_libraries_spec.lua
	-TORTURE_SHARE=20 $(BUILD)/tycho spec/torture/faults.lua $(abspath $(BUILD))/libtycho.so $(COVERAGE_FAULTS)

# specs look for the stand-in in build/cudasim
coverage: cudasim
	@mkdir -p build/coverage && ln -sfn ../cudasim build/coverage/cudasim
	@find build/coverage -name '*.gcda' -delete
	@$(MAKE) --no-print-directory MODE=coverage coverage-runs
	@$(LUAJIT) scripts/dev/coverage.lua build/coverage $(COVERAGE_LEAST)

# Launches and bytes of device memory, counted by the stand-in's checker: of operators and of training steps. COST: some of them, --kernels
COST ?=
gpu-cost: all cudasim
	@$(TEST_ENV) TYCHO_CUDA_PATH='$(abspath $(BUILD))/cudasim' TYCHO_CACHE='$(abspath $(BUILD))/cubins-checked' CUDASIM_CHECK=1 \
	  CUDASIM_COSTS=1 CUDASIM_GUARD=0 CUDASIM_STREAMS=eager CUDASIM_SPOIL=4096 $(BUILD)/tycho scripts/dev/gpu_cost.lua $(COST)

# reads arrays in loads of 64 bytes, beside which a step of decoding is timed
$(BUILD)/bench/libloads.so: scripts/dev/bench/loads.c
	@mkdir -p $(dir $@)
	$(call say,LD ,$@)
	$(Q)$(CC) -std=c11 -D_GNU_SOURCE -O2 -march=native $(WARN) -shared -fPIC -pthread -o $@ $<

# DEVICE=gpu: ours on a GPU
bench: all $(BUILD)/bench/libloads.so
	rm -f $(BUILD)/bench.json
	$(BUILD)/tycho scripts/dev/bench/bench.lua --json $(BUILD)/bench.json

doc: all
	@rm -rf $(BUILD)/doc
	LD_LIBRARY_PATH=$(BUILD) $(BUILD)/tycho scripts/dev/doc.lua $(BUILD)/doc
	$(LUAJIT) scripts/dev/check.lua --picture $(BUILD)/doc/rooms.svg $(BUILD)

# -- install ------------------------------------------------------------------------------------------------------

comma   := ,
VERSION := $(shell sed -n 's/.*ty_version.*"\(.*\)".*/\1/p' native/base/version.c)

# below DESTDIR; LIBRARY_DIR holds libtycho.so
LIBDIR      ?= $(PREFIX)/lib
SHARE_DIR    = $(PREFIX)/share
BIN_DIR      = $(PREFIX)/bin
LUA_DIR      = $(SHARE_DIR)/lua/5.1
LIBRARY_DIR  = $(if $(SONAME),$(LIBDIR),$(PREFIX)/lib/lua/5.1/tycho)
MPI_DIR      = $(LIBRARY_DIR)$(if $(SONAME),/tycho)
INCLUDE_DIR  = $(PREFIX)/include
PC_DIR       = $(LIBDIR)/pkgconfig
PC_PREFIX    = $(PREFIX)
PC_LIBRARY_DIR  = $(LIBRARY_DIR)
DEFINITIONS_DIR = $(SHARE_DIR)/tycho/library
ZSH_DIR     ?= $(SHARE_DIR)/zsh/site-functions
COMPLETIONS  = $(SHARE_DIR)/bash-completion/completions/tycho $(ZSH_DIR)/_tycho \
               $(SHARE_DIR)/fish/vendor_completions.d/tycho.fish
MAN_PAGES    = $(SHARE_DIR)/man/man1/tycho.1 $(SHARE_DIR)/man/man3/tycho.h.3

# what the prompt and --script find beside the modules
BESIDE := $(sort $(wildcard scripts/*.lua scripts/lib/*.lua $(addprefix scripts/models/*.,lua t7) doc/*.md))

# $(call install_files,root,files,folder): installs files below root in the same folders below another one, a command a folder
install_files = $(foreach d,$(sort $(dir $(2))),install -d $(3)/$(d) && \
  install -m 644 $(foreach f,$(2),$(if $(filter $(d),$(dir $(f))),$(1)$(f))) $(3)/$(d) &&) true

install: install-modules install-beside
	@echo "installed below $(DESTDIR)$(PREFIX); a plain luajit finds it with"
	@echo "  export LUA_PATH='$(LUA_DIR)/?.lua;$(LUA_DIR)/?/init.lua;;'"
	@echo "  export TYCHO_LIB=$(LIBRARY_DIR)/libtycho.so"

# what Lua looks for, the program, and what both find beside the modules
install-modules: all
	install -d $(DESTDIR)$(BIN_DIR) $(DESTDIR)$(LIBRARY_DIR)
	install -m 755 $(BUILD)/tycho $(DESTDIR)$(BIN_DIR)/tycho
	install -m 755 $(BUILD)/libtycho.so $(DESTDIR)$(LIBRARY_DIR)/libtycho.so$(SONAME:%=.$(VERSION))
	$(if $(SONAME),ln -sf libtycho.so.$(VERSION) $(DESTDIR)$(LIBRARY_DIR)/$(SONAME))
	$(if $(SONAME),ln -sf $(SONAME) $(DESTDIR)$(LIBRARY_DIR)/libtycho.so)
	$(if $(MPI_LIBRARY),install -D -m 755 $(MPI_LIBRARY) $(DESTDIR)$(MPI_DIR)/libtycho_mpi.so)
	@$(call install_files,runtime/lua/,$(LUA:runtime/lua/%=%),$(DESTDIR)$(LUA_DIR))
	@$(call install_files,,$(BESIDE),$(DESTDIR)$(LUA_DIR)/tycho)
	install -m 644 native/tycho.h $(DESTDIR)$(LUA_DIR)/tycho/tycho.h

# what has its place outside Lua's folders
install-beside: library
	install -D -m 644 native/tycho.h $(DESTDIR)$(INCLUDE_DIR)/tycho.h
	install -d $(DESTDIR)$(PC_DIR) $(DESTDIR)$(DEFINITIONS_DIR)
	sed -e 's|@PREFIX@|$(PC_PREFIX)|' -e 's|@LIBRARY_DIR@|$(PC_LIBRARY_DIR)|' -e 's|@VERSION@|$(VERSION)|' \
	  -e 's|@RPATH@|$(if $(SONAME),,-Wl$(comma)-rpath$(comma)$${libdir} )|' \
	  packaging/tycho.pc.in > $(DESTDIR)$(PC_DIR)/tycho.pc
	install -m 644 $(BUILD)/library/* $(DESTDIR)$(DEFINITIONS_DIR)
	install -D -m 644 packaging/completion/tycho.bash $(DESTDIR)$(word 1,$(COMPLETIONS))
	install -D -m 644 packaging/completion/tycho.zsh $(DESTDIR)$(word 2,$(COMPLETIONS))
	install -D -m 644 packaging/completion/tycho.fish $(DESTDIR)$(word 3,$(COMPLETIONS))
	install -D -m 644 packaging/man/tycho.1 $(DESTDIR)$(word 1,$(MAN_PAGES))
	install -D -m 644 $(BUILD)/tycho.h.3 $(DESTDIR)$(word 2,$(MAN_PAGES))

uninstall:
	rm -f $(DESTDIR)$(BIN_DIR)/tycho $(DESTDIR)$(INCLUDE_DIR)/tycho.h $(DESTDIR)$(PC_DIR)/tycho.pc \
	  $(addprefix $(DESTDIR),$(COMPLETIONS) $(MAN_PAGES))
	rm -f $(addprefix $(DESTDIR)$(LIBRARY_DIR)/,libtycho.so $(SONAME) $(SONAME:%=libtycho.so.$(VERSION))) \
	  $(DESTDIR)$(MPI_DIR)/libtycho_mpi.so
	rm -rf $(DESTDIR)$(PREFIX)/lib/lua/5.1/tycho $(DESTDIR)$(LUA_DIR)/tycho $(DESTDIR)$(SHARE_DIR)/tycho

# definitions of classes, functions and operators for the Lua language server, the same as JSON; the man page of the header
library: all
	@rm -rf $(BUILD)/library && mkdir -p $(BUILD)/library
	LD_LIBRARY_PATH=$(BUILD) $(BUILD)/tycho scripts/dev/library.lua $(BUILD)/library
	LD_LIBRARY_PATH=$(BUILD) $(BUILD)/tycho scripts/dev/man.lua > $(BUILD)/tycho.h.3

# LuaRocks builds with one job unless MAKEFLAGS says more. It moves BIN_DIR, LUA_DIR and LIBRARY_DIR, which the rockspec gives, to their
# places in the tree; the rest stays in the rock's own folder, PREFIX: the library is then in lib/lua/5.1/tycho of the tree, whose
# lib/luarocks/rocks-5.1/tycho/VERSION that folder is.
rock:
	+@$(MAKE) --no-print-directory $(if $(findstring -j,$(MAKEFLAGS)),,-j$$(($$(nproc) + 1))) UNITS=$(UNITS) all

install-rock: PC_DIR = $(SHARE_DIR)/pkgconfig
install-rock: PC_PREFIX = $${pcfiledir}/../..
install-rock: PC_LIBRARY_DIR = $${prefix}/../../../../lua/5.1/tycho
install-rock: DEFINITIONS_DIR = $(PREFIX)/library
install-rock: install-modules install-beside

# -- release ------------------------------------------------------------------------------------------------------
# The scm rockspec with the version and the archive's address is the release's. The rock has a zip: LuaRocks takes a process a file
# to unpack a tar.

RELEASE := tycho-$(VERSION)
DIST    := $(BUILD)/dist
ADDRESS := https://github.com/tycho-lua/tycho/releases/download/v$(VERSION)/$(RELEASE).zip
CONTENT := $(wildcard *.md *.rockspec LICENSE Makefile config.ld .busted .luacheckrc .clang-format .editorconfig) \
           doc native packaging runtime scripts spec

dist:
	@rm -rf $(DIST) && mkdir -p $(DIST)/$(RELEASE)
	@cp -rp $(CONTENT) $(DIST)/$(RELEASE)
	@sed -e 's|^version = .*|version = "$(VERSION)-1"|' -e 's|^  url = .*|  url = "$(ADDRESS)",|' tycho-scm-1.rockspec \
	  | tee $(DIST)/$(RELEASE)/$(RELEASE)-1.rockspec > $(DIST)/$(RELEASE)-1.rockspec
	@cd $(DIST) && tar -czf $(RELEASE).tar.gz --sort=name --owner=0 --group=0 --numeric-owner $(RELEASE) \
	  && find $(RELEASE) | LC_ALL=C sort | zip -qX $(RELEASE).zip -@ && rm -r $(RELEASE) \
	  && zip -q $(RELEASE)-1.src.rock $(RELEASE)-1.rockspec $(RELEASE).zip
	@ls $(DIST)/*

# -- packages of distributions --------------------------------------------------------------------------------------
# Each is built from the release, as a distribution builds it. The distribution's tools say what is missing.

PACKAGE_JOBS ?= $(shell nproc)

deb: dist
	@rm -rf $(BUILD)/deb && mkdir -p $(BUILD)/deb
	@cp $(DIST)/$(RELEASE).tar.gz $(BUILD)/deb/tycho_$(VERSION).orig.tar.gz
	@cd $(BUILD)/deb && tar -xzf tycho_$(VERSION).orig.tar.gz && cp -r $(RELEASE)/packaging/debian $(RELEASE)/debian
	cd $(BUILD)/deb/$(RELEASE) && env -u MAKEFLAGS -u MAKELEVEL DEB_CFLAGS_STRIP=-g \
	  DEB_BUILD_OPTIONS='parallel=$(PACKAGE_JOBS) noautodbgsym' dpkg-buildpackage -us -uc
	@ls $(BUILD)/deb/*.deb

rpm: dist
	@rm -rf $(BUILD)/rpm && mkdir -p $(BUILD)/rpm/SOURCES
	@cp $(DIST)/$(RELEASE).tar.gz $(BUILD)/rpm/SOURCES
	rpmbuild -bb $(RPM_FLAGS) --define '_topdir $(abspath $(BUILD))/rpm' --define 'tycho_version $(VERSION)' packaging/tycho.spec
	@ls $(BUILD)/rpm/RPMS/*/*.rpm

arch: dist
	@rm -rf $(BUILD)/arch && mkdir -p $(BUILD)/arch
	@cp $(DIST)/$(RELEASE).tar.gz packaging/PKGBUILD $(BUILD)/arch
	cd $(BUILD)/arch && makepkg $(MAKEPKG_FLAGS)
	@ls $(BUILD)/arch/*.pkg.tar*

clean:
	rm -rf build

FORCE:
.PHONY: all test test-native check check-source check-lua check-comments check-compilers check-units check-musl check-onednn check-cuda check-nvrtc check-cudnn check-sass objects syntax units cudasim test-gpu gpu-cost torture fuzz replay arm64 arm64-test arm64-sysroot coverage coverage-runs bench doc install install-modules install-beside install-rock uninstall library rock dist deb rpm arch clean FORCE
.DELETE_ON_ERROR:
