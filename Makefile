# Tycho: make, make test, make check, make bench, make install PREFIX=, make clean
# BUILD=folder builds elsewhere; MODE=release|debug|asan|tsan picks flags; CC=gcc|clang.

MODE  ?= release
BUILD ?= build$(if $(filter-out release,$(MODE)),/$(MODE))
CC    ?= gcc

WARN   = -Wall -Wextra -Wshadow -Wstrict-prototypes -Wno-unused-parameter -Wno-missing-field-initializers
CFLAGS_release = -O2 -g1
CFLAGS_debug   = -O0 -g
CFLAGS_asan    = -O1 -g -fsanitize=address,undefined -fno-omit-frame-pointer
CFLAGS_tsan    = -O1 -g -fsanitize=thread -DTY_NO_OPENMP
OPENMP = $(if $(filter tsan,$(MODE)),,-fopenmp)
ALL    = -std=c11 -D_GNU_SOURCE -Inative -I$(BUILD) -fPIC -fvisibility=hidden -fno-math-errno -fno-trapping-math -ffp-contract=off \
         $(WARN) $(CFLAGS_$(MODE)) $(CFLAGS)

OPS  := $(sort $(wildcard native/op/*.c))
SRC  := $(sort $(wildcard native/*.c)) $(OPS) $(sort $(wildcard native/io/*.c))
ISA  := $(sort $(wildcard native/isa/*.c))
ISAS := baseline avx2 avx512
ISA_baseline = -DISA=baseline
ISA_avx2     = -DISA=avx2 -mavx2 -mfma -mf16c
ISA_avx512   = -DISA=avx512 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx2 -mfma -mf16c -mprefer-vector-width=512
OBJ  := $(SRC:%.c=$(BUILD)/%.o) $(foreach i,$(ISAS),$(ISA:%.c=$(BUILD)/%.$(i).o))
DNNL := $(shell printf '\#include <oneapi/dnnl/dnnl.h>\nint main(void){return 0;}' | $(CC) -x c - -o /dev/null -ldnnl 2>/dev/null && echo 1)
ifeq ($(DNNL),1)
SRC_DNNL := $(sort $(wildcard native/dnnl/*.c))
OBJ += $(SRC_DNNL:%.c=$(BUILD)/%.o)
ALL += -DTY_DNNL
LIBS += -ldnnl
endif
LIBS += -lopenblas -lm -lpthread -ldl

all: $(BUILD)/libtycho.so

$(BUILD)/libtycho.so: $(OBJ)
	$(CC) $(ALL) $(OPENMP) -shared -o $@.tmp $(OBJ) $(LIBS) && mv $@.tmp $@

$(BUILD)/ops.inc: $(OPS) Makefile
	@mkdir -p $(dir $@)
	@for f in $(notdir $(OPS:.c=)); do echo "OP($$f)"; done > $@.tmp && (cmp -s $@.tmp $@ || mv $@.tmp $@)

$(BUILD)/%.o: %.c | $(BUILD)/ops.inc
	@mkdir -p $(dir $@)
	$(CC) $(ALL) $(if $(findstring native/parallel,$<),$(OPENMP)) -MMD -MP -c $< -o $@

define isa_rule
$(BUILD)/%.$(1).o: %.c
	@mkdir -p $$(dir $$@)
	$(CC) $(ALL) -O3 $(ISA_$(1)) -MMD -MP -c $$< -o $$@
endef
$(foreach i,$(ISAS),$(eval $(call isa_rule,$(i))))

-include $(OBJ:.o=.d)

clean:
	rm -rf build

.PHONY: all clean test check bench install doc
