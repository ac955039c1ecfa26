/* source.c - see source.h. */
#include "base/whole_file.h"
#include "io/source.h"

/* 2^DRAWS_SHIFT random numbers are reserved for each field of a sample */
enum { DRAWS_SHIFT = 16 };

/* -- making and freeing ------------------------------------------------------------------------ */

int ty_source_new(ty_source **out)
{
  NEED(out, TY_ETYPE, "source_new: null argument");
  ty_source *r = NEW(ty_source);
  if (!r) return TY_EMEMORY;
  r->refs = 1;
  r->file.fd = -1;
  *out = r;
  return TY_OK;
}

struct ty_source *source_keep(struct ty_source *r)
{
  __atomic_add_fetch(&r->refs, 1, __ATOMIC_RELAXED);
  return r;
}

void ty_source_free(ty_source *r)
{
  if (!r || mem_kept() || __atomic_sub_fetch(&r->refs, 1, __ATOMIC_ACQ_REL)) return;
  for (int i = 0; i < r->fields; i++) {
    ty_tensor_free(r->field[i].rows);
    mem_free(r->field[i].path);
    mem_free(r->field[i].step);
  }
  record_file_close(&r->file);
  mem_free(r->offset);
  arena_done(&r->texts);
  mem_free(r);
}

static int field_add(ty_source *r, struct sample_field f)
{
  NEED(r->fields < MOST_FIELDS, TY_EUNSUPPORTED, "a sample has at most %d fields", MOST_FIELDS);
  r->field[r->fields++] = f;
  return TY_OK;
}

int ty_source_rows(ty_source *r, ty_tensor *rows)
{
  NEED(r && rows, TY_ETYPE, "source_rows: null argument");
  struct sample_field f = { .origin = ROWS, .rows = rows, .row = rows->d, .count = rows->d.dim[0] };
  void *p;
  TRY(ty_tensor_data(rows, &p));
  f.data = p;
  f.row.ndim--;
  for (int i = 0; i < TY_MAXDIM; i++) f.row.dim[i] = i < f.row.ndim ? rows->d.dim[i + 1] : 0;
  TRY(field_add(r, f));
  return ty_tensor_keep(rows);
}

int ty_source_files(ty_source *r, const char *const *path, int64_t n, int flag)
{
  NEED(r && path, TY_ETYPE, "source_files: null argument");
  struct sample_field f = { .origin = FILES, .flag = flag, .count = n, .path = NEWS(char *, n) };
  int code = f.path ? TY_OK : TY_EMEMORY;
  for (int64_t i = 0; i < n && code == TY_OK; i++) {
    f.path[i] = arena_text(&r->texts, path[i]);
    if (!f.path[i]) code = fail(TY_EMEMORY, "out of memory");
  }
  if (code == TY_OK) code = field_add(r, f);
  if (code != TY_OK) mem_free(f.path);
  return code;
}

int ty_source_records(
    ty_source *r, const char *path, const int64_t *offset, int64_t n, int flag)
{
  NEED(r && path && offset, TY_ETYPE, "source_records: null argument");
  NEED(!r->offset, TY_EUNSUPPORTED, "a source has one file of records");
  r->offset = NEWS(int64_t, n);
  if (!r->offset) return TY_EMEMORY;
  memcpy(r->offset, offset, sizeof *offset * (size_t)n);
  TRY(record_file_open(&r->file, path));
  TRY(field_add(r, (struct sample_field){ .origin = IMAGES, .flag = flag, .count = n }));
  return field_add(r, (struct sample_field){ .origin = LABELS, .count = n });
}

int ty_source_given(ty_source *r)
{
  NEED(r, TY_ETYPE, "source_given: null source");
  TRY(field_add(r, (struct sample_field){ .origin = GIVEN, .given = r->given }));
  r->given++;
  return TY_OK;
}

int ty_source_steps(ty_source *r, int field, const ty_image_step *step, int n)
{
  NEED(r && (step || !n), TY_ETYPE, "source_steps: null argument");
  NEED(field >= 0 && field < r->fields, TY_EINDEX, "field %d of %d", field, r->fields);
  TRY(steps_check(step, n));
  ty_image_step *own = NEWS(ty_image_step, n);
  if (!own) return TY_EMEMORY;
  if (n) memcpy(own, step, sizeof *step * (size_t)n);
  mem_free(r->field[field].step);
  r->field[field].step = own;
  r->field[field].steps = n;
  return TY_OK;
}

/* -- one field of one sample ------------------------------------------------------------------- */

void sample_maker_done(struct sample_maker *m)
{
  picture_done(&m->picture);
  mem_free(m->text.p);
  *m = (struct sample_maker){ 0 };
}

static int decode_image(struct sample_maker *m, struct file_bytes file, int flag)
{
  struct pixels size;
  TRY(image_measure(file, flag, &size));
  return workspace_decode(&m->picture.space, file, size.c);
}

static int decode_file(struct sample_maker *m, const char *path, int flag)
{
  char *data, what[400];
  size_t n;
  TRY(file_read(path, &data, &n));
  int code = decode_image(m, (struct file_bytes){ (const uint8_t *)data, n }, flag);
  mem_free(data);
  if (code == TY_OK) return code;
  snprintf(what, sizeof what, "%s", ty_error());
  return fail(code, "'%s': %s", path, what);
}

static int decode_record(
    const struct ty_source *r, int64_t sample, int flag, struct sample_maker *m)
{
  int64_t n, next, at = r->offset[sample];
  char what[400];
  TRY(record_file_read(&r->file, at, &m->text, &n, &next));
  int code = image_head_read(m->text.p, n, &m->head);
  if (code == TY_OK) {
    const uint8_t *file = (const uint8_t *)m->text.p + m->head.bytes;
    code = decode_image(m, (struct file_bytes){ file, (size_t)(n - m->head.bytes) }, flag);
  }
  if (code == TY_OK) return code;
  snprintf(what, sizeof what, "%s", ty_error());
  return fail(code, "'%s', record at byte %lld: %s", r->file.path, (long long)at, what);
}

static struct sample_value label_value(const struct image_head *head)
{
  struct sample_value v = { { .dtype = TY_F32, .ndim = head->listed }, head->label };
  v.d.dim[0] = head->listed ? head->labels : 0;
  return v;
}

/* Runs the steps of a field on the image of p. *v points to the result, in p. */
static int change_value(
    const struct sample_field *f, struct sample_value *v, struct rng *rng, struct picture *p)
{
  char text[96];
  const struct pixels *now = &p->space.now;
  NEED(v->d.ndim == 3, TY_ESHAPE, "an image has three dimensions, not the shape %s",
      text_shape(&v->d, text, sizeof text));
  TRY(steps_run(f->step, f->steps, rng, p));
  v->d = (ty_desc){ .dtype = now->dtype, .ndim = 3, .dim = { now->h, now->w, now->c } };
  v->p = now->p;
  return TY_OK;
}

/* Sets *v to the maker's decoded image, or, if the value is not `decoded`, the maker's image to the
** array in *v. */
static void take_image(struct sample_maker *m, struct sample_value *v, bool decoded)
{
  struct pixels *now = &m->picture.space.now;
  if (decoded)
    *v = (struct sample_value){
      { .dtype = now->dtype, .ndim = 3, .dim = { now->h, now->w, now->c } }, now->p };
  else
    *now = (struct pixels){ (void *)(uintptr_t)v->p, v->d.dtype, v->d.dim[0], v->d.dim[1],
      v->d.dim[2] };
}

int sample_make(const struct ty_source *r, int i, int64_t sample, ty_tensor *const *given,
    struct rng rng, struct sample_maker *m, struct sample_value *out)
{
  const struct sample_field *f = &r->field[i];
  bool decoded = f->origin == FILES || f->origin == IMAGES;
  switch (f->origin) {
  case ROWS:
    *out = (struct sample_value){ f->row,
      f->data + (size_t)sample * (f->row.ndim ? desc_bytes(&f->row) : dtype_size(f->row.dtype)) };
    break;
  case GIVEN:
    *out = (struct sample_value){ given[f->given]->d, tensor_at(given[f->given]) };
    break;
  case FILES: TRY(decode_file(m, f->path[sample], f->flag)); break;
  case IMAGES: TRY(decode_record(r, sample, f->flag, m)); break;
  case LABELS: *out = label_value(&m->head); break;
  }
  if (decoded || f->steps) take_image(m, out, decoded);
  rng.used = (uint32_t)i << DRAWS_SHIFT;
  return f->steps ? change_value(f, out, &rng, &m->picture) : TY_OK;
}

/* -- one image --------------------------------------------------------------------------------- */

int ty_steps_check(const ty_image_step *step, int n)
{
  NEED(step, TY_ETYPE, "steps_check: null argument");
  return steps_check(step, n);
}

int ty_steps_run(const ty_image_step *step, int n, ty_tensor *image, uint64_t seed, uint64_t epoch,
    uint64_t sample, ty_tensor **out)
{
  NEED(step && image && out, TY_ETYPE, "steps_run: null argument");
  TRY(steps_check(step, n));
  const struct sample_field f = { .step = (ty_image_step *)(uintptr_t)step, .steps = n };
  struct rng rng = { seed, epoch, sample, 0 };
  struct sample_maker m = { 0 };
  struct sample_value v = { image->d, NULL };
  void *p;
  TRY(ty_tensor_data(image, &p));
  v.p = p;
  take_image(&m, &v, false);
  int code = change_value(&f, &v, &rng, &m.picture);
  v.d.device = TY_CPU;
  if (code == TY_OK) code = ty_tensor_new(&v.d, out);
  if (code == TY_OK) code = ty_tensor_write(*out, v.p, desc_bytes(&v.d));
  sample_maker_done(&m);
  return code;
}

uint64_t ty_sample_seed(uint64_t seed, uint64_t epoch, uint64_t sample)
{
  struct philox p = philox(seed, epoch, 1, sample);
  return (uint64_t)p.w[0] << 32 | p.w[1];
}
