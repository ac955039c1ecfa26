/* parts.c - see parts.h. The fields of parts that a pass does not write are copied before it runs
** and compared afterwards; those that it does not read either hold nonsense meanwhile.
*/
#include "pass/parts.h"

#ifdef TY_CHECK_PASSES

/* where a field is: in struct program, or in each element of one of its arrays */
enum field_extent {
  IN_PROGRAM,
  PER_NODE,
  PER_VALUE,
  PER_STEP
};
struct field { int part; enum field_extent extent; size_t array, stride, offset, size; };

#define SIZE(type, field) sizeof(((type *)0)->field)
#define PROGRAM(part, field) \
  { part, IN_PROGRAM, 0, 0, offsetof(struct program, field), SIZE(struct program, field) }
#define NODE(part, array) \
  { part, PER_NODE, offsetof(struct program, array), SIZE(struct program, array[0]), 0, \
    SIZE(struct program, array[0]) }
#define VALUE(part, field) \
  { part, PER_VALUE, offsetof(struct program, value), sizeof(struct value), \
    offsetof(struct value, field), SIZE(struct value, field) }
#define STEP(part, field) \
  { part, PER_STEP, offsetof(struct program, step), sizeof(struct step), \
    offsetof(struct step, field), SIZE(struct step, field) }

static const struct field fields[] = {
  NODE(GROUPS, group),             PROGRAM(GROUPS, readers),
  NODE(EPILOGUES, fusion),         NODE(EPILOGUES, taken_by),
  STEP(STEPS, kind),               STEP(STEPS, node),               STEP(STEPS, member),
  STEP(STEPS, nmember),            STEP(STEPS, bound),              STEP(STEPS, from),
  STEP(STEPS, guard),              STEP(STEPS, device),             NODE(STEPS, step_of),
  NODE(STEPS, member),             PROGRAM(STEPS, n),               PROGRAM(STEPS, nforward),
  VALUE(ROOTS, kind),              VALUE(ROOTS, root),              VALUE(ROOTS, bound),
  VALUE(ROOTS, device),            VALUE(ROOTS, add),               VALUE(ROOTS, bytes),
  STEP(ROOTS, in),                 STEP(ROOTS, out),                STEP(ROOTS, nin),
  STEP(ROOTS, nout),               PROGRAM(ROOTS, ndevice),         PROGRAM(ROOTS, device),
  VALUE(BLOCKS, block),
  STEP(KERNELS, v),                STEP(KERNELS, scratch),          STEP(KERNELS, why),
  VALUE(LIFETIMES, first),         VALUE(LIFETIMES, last),          VALUE(LIFETIMES, last_write),
  VALUE(LIFETIMES, pinned),        VALUE(LIFETIMES, nread),         VALUE(LIFETIMES, reader),
  STEP(NORMS, fused_norm),         STEP(NORMS, fused_into),
  VALUE(OFFSETS, offset),          STEP(OFFSETS, scratch_at),       PROGRAM(OFFSETS, pool),
  PROGRAM(OFFSETS, bound),         PROGRAM(OFFSETS, unshared),
  STEP(STATES, state),             STEP(STATES, state_of),          STEP(STATES, state_shared),
  STEP(CODE, pw),                  STEP(CODE, loop),                STEP(CODE, operand),
  STEP(CODE, pw_value),            STEP(CODE, npw),
  PROGRAM(SEGMENTS, segment),      PROGRAM(SEGMENTS, nsegment),
  PROGRAM(SEGMENTS, nsegment_forward),
  STEP(SEGMENTS, before),          STEP(SEGMENTS, after),
};

enum { POISON = 0xA5 };

/* Elements of a field's array before the pass. */
struct span { char *first; int n; char *copy; };

static int parts_count_elements(const struct program *p, enum field_extent extent)
{
  switch (extent) {
  case PER_NODE: return p->s.g->n;
  case PER_VALUE: return p->s.g->nvalue;
  case PER_STEP: return p->n;
  default: return 1;
  }
}

static size_t parts_stride_of(const struct field *f)
{
  return f->extent == IN_PROGRAM ? f->size : f->stride;
}

/* Returns whether a pass that writes `writes` must leave a field as it is. Steps that are put in
** another order take all of their fields along. */
static bool parts_is_guarded(const struct field *f, int writes)
{
  return !(f->part & writes) && !(writes & STEPS && f->extent == PER_STEP);
}

static int parts_save_field(struct program *p, const struct field *f, struct span *s)
{
  const size_t stride = parts_stride_of(f);
  char *array = f->extent == IN_PROGRAM ? (char *)p : *(char **)((char *)p + f->array);
  s->first = array ? array + f->offset : NULL;
  s->n = s->first ? parts_count_elements(p, f->extent) : 0;
  s->copy = s->n ? mem_new((size_t)s->n * f->size) : NULL;
  NEED(s->copy || !s->n, TY_EMEMORY, "out of memory: check of passes");
  for (int i = 0; i < s->n; i++)
    memcpy(s->copy + (size_t)i * f->size, s->first + (size_t)i * stride, f->size);
  return TY_OK;
}

static void parts_poison_field(const struct field *f, const struct span *s)
{
  for (int i = 0; i < s->n; i++) memset(s->first + (size_t)i * parts_stride_of(f), POISON, f->size);
}

static void parts_restore_field(const struct field *f, const struct span *s)
{
  for (int i = 0; i < s->n; i++)
    memcpy(s->first + (size_t)i * parts_stride_of(f), s->copy + (size_t)i * f->size, f->size);
}

static bool parts_field_differs(const struct field *f, const struct span *s)
{
  for (int i = 0; i < s->n; i++)
    if (memcmp(s->first + (size_t)i * parts_stride_of(f), s->copy + (size_t)i * f->size, f->size))
      return true;
  return false;
}

static bool parts_is_hidden(const struct field *f, int reads, int writes)
{
  return parts_is_guarded(f, writes) && !(f->part & (reads | GRAPH));
}

int parts_run(struct program *p, const char *name, int (*run)(struct program *), int reads,
    int writes)
{
  struct span span[COUNT(fields)] = { { 0 } };
  int code = TY_OK, wrong = 0;
  for (int i = 0; i < COUNT(fields) && !code; i++)
    if (parts_is_guarded(&fields[i], writes)) code = parts_save_field(p, &fields[i], &span[i]);
  for (int i = 0; i < COUNT(fields) && !code; i++)
    if (parts_is_hidden(&fields[i], reads, writes)) parts_poison_field(&fields[i], &span[i]);
  if (!code) code = run(p);
  for (int i = 0; i < COUNT(fields); i++)
    if (parts_is_hidden(&fields[i], reads, writes)) parts_restore_field(&fields[i], &span[i]);
  for (int i = 0; i < COUNT(fields); i++) {
    if (parts_is_guarded(&fields[i], writes) && !parts_is_hidden(&fields[i], reads, writes) &&
        parts_field_differs(&fields[i], &span[i]))
      wrong |= fields[i].part;
    mem_free(span[i].copy);
  }
  NEED(code || !wrong, TY_EINTERNAL, "pass %s writes parts %#x, which its row does not say", name,
      (unsigned)wrong);
  return code;
}

#else

int parts_run(struct program *p, const char *name, int (*run)(struct program *), int reads,
    int writes)
{
  (void)name;
  (void)reads;
  (void)writes;
  return run(p);
}

#endif
