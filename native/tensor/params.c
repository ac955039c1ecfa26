/* params.c - the reference's files of arrays (x.params): reads all versions, writes the current
** one.
**
** Little-endian. File: 64-bit magic 0x112, reserved word, count, records, name count (0 or count),
** names (64-bit length, bytes). The reserved word, of any value, has in our checkpoints a checksum:
** CRC-32 of all that follows, in the high half, and its complement in the low one. A record of
** version 2: 32-bit magic, storage type, shape (32-bit ndim, 64-bit dims), device type and id,
** dtype, elements; no more than the shape where ndim is 0 (a null array). Version 1 lacks the
** storage type; version 0 lacks the magic too and has 32-bit dims; version 3 is 2 with NumPy's
** shapes (ndim 0 is a scalar, -1 a null array). A sparse record (storage type 1 or 2) adds a shape
** of what is stored and index arrays; it is read as a dense array. The reference writes the shape
** of what is stored before it waits for the array and the shapes of the index arrays after it, so
** only these say how much is stored.
**
** Counts are checked against the bytes that follow before memory is taken for them, so a damaged
** one cannot make us allocate. All dense arrays made of sparse ones together may have 64 MiB plus
** four times the bytes of the file. Integer types that Tycho does not have are read as wider ones.
** Tycho has no null and no empty arrays: they are left out of files with names, and refused in
** files without.
*/
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <zlib.h>
#include "base/atomic_file.h"
#include "base/file_kind.h"
#include "base/system.h"
#include "tensor/tensor.h"

#define LIST_MAGIC 0x112u
enum { V1 = 0xF993FAC8, V2 = 0xF993FAC9, V3 = 0xF993FACA };
enum { DENSE = 0, ROW_SPARSE = 1, CSR = 2 };

/* -- reading bytes ----------------------------------------------------------------------------- */

struct cursor {
  const char *name;                                   /* of the file, for messages */
  FILE *file;                                         /* NULL: in memory */
  const uint8_t *data;
  uint64_t size, at;
  /* bytes of dense arrays made of sparse ones */
  uint64_t dense;
  uint32_t crc;                                       /* of the bytes read after the checksum */
};

static uint64_t checksum_word(uint32_t crc) { return (uint64_t)crc << 32 | (uint32_t)~crc; }

/* Returns whether the halves of a word are complements but for at most 4 bits: it is a checksum of
** ours, perhaps damaged. */
static bool is_checksum(uint64_t word)
{
  return __builtin_popcount((uint32_t)(word >> 32) ^ (uint32_t)~word) <= 4;
}

static int fail_corrupt(const struct cursor *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static int fail_corrupt(const struct cursor *r, const char *format, ...)
{
  char what[512];
  va_list a;
  va_start(a, format);
  number_format(what, sizeof what, format, a);
  va_end(a);
  unsigned long long at = r->at, size = r->size;
  return fail(TY_EFORMAT, "%s: byte %llu of %llu: %s", r->name, at, size, what);
}

static uint64_t bytes_left(const struct cursor *r) { return r->size - r->at; }

static int take_bytes(struct cursor *r, void *out, uint64_t n, const char *what)
{
  unsigned long long missing = n > bytes_left(r) ? n - bytes_left(r) : 0;
  if (missing)
    return fail_corrupt(r, "the file ends within %s: %llu bytes are missing", what, missing);
  if (r->file && fread(out, 1, n, r->file) != n)
    return fail(TY_EIO, "cannot read '%s': %s", r->name,
        ferror(r->file) ? strerror(errno) : "it became shorter");
  if (!r->file && n) memcpy(out, r->data + r->at, n);
  r->at += n;
  r->crc = (uint32_t)crc32_z(r->crc, out, n);
  return TY_OK;
}

static int take_u32(struct cursor *r, uint32_t *out, const char *what)
{
  uint8_t b[4];
  TRY(take_bytes(r, b, 4, what));
  *out = (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
  return TY_OK;
}

static int take_i32(struct cursor *r, int32_t *out, const char *what)
{
  uint32_t u;
  TRY(take_u32(r, &u, what));
  memcpy(out, &u, 4);
  return TY_OK;
}

static int take_u64(struct cursor *r, uint64_t *out, const char *what)
{
  uint32_t low, high;
  TRY(take_u32(r, &low, what));
  TRY(take_u32(r, &high, what));
  *out = (uint64_t)high << 32 | low;
  return TY_OK;
}

/* -- a record ---------------------------------------------------------------------------------- */

struct shape { int32_t ndim; int64_t dim[TY_MAXDIM]; };
struct record {
  uint32_t version;                                   /* V1 .. V3; 0 */
  int32_t storage;                                    /* DENSE, ROW_SPARSE, CSR */
  bool absent;                                        /* a null array, or one without elements */
  struct shape shape, stored;
  int32_t code;                                       /* of the type: is_foreign */
  struct { int32_t code; struct shape shape; } index[2];
};

static int take_dims(struct cursor *r, struct shape *s, bool narrow)
{
  if (s->ndim > TY_MAXDIM)
    return fail_corrupt(r, "an array of %d dimensions; there are at most %d", s->ndim, TY_MAXDIM);
  for (int i = 0; i < s->ndim; i++) {
    uint64_t dim;
    uint32_t small = 0;
    if (narrow) {
      TRY(take_u32(r, &small, "a shape"));
      dim = small;
    }
    else
      TRY(take_u64(r, &dim, "a shape"));
    if (dim > INT64_MAX) return fail_corrupt(r, "dimension %d of an array is negative", i);
    s->dim[i] = (int64_t)dim;
  }
  return TY_OK;
}

static int take_shape(struct cursor *r, struct shape *s)
{
  TRY(take_i32(r, &s->ndim, "a shape"));
  if (s->ndim < -1) return fail_corrupt(r, "an array of %d dimensions", s->ndim);
  return take_dims(r, s, false);
}

/* Returns the number of elements; -1: it does not fit in 64 bits. */
static int64_t count_elements(const struct shape *s)
{
  int64_t n = 1;
  for (int i = 0; i < s->ndim; i++)
    if (s->dim[i] == 0) return 0;
  for (int i = 0; i < s->ndim; i++)
    if (__builtin_mul_overflow(n, s->dim[i], &n)) return -1;
  return n;
}

/* Types of the reference that Tycho does not have. */
enum { INT16 = 8, UINT16, UINT32, UINT64 };
static const struct { uint8_t size, dtype; } foreign[] = {
  [INT16]  = { 2, TY_I32 },
  [UINT16] = { 2, TY_I32 },
  [UINT32] = { 4, TY_I64 },
  [UINT64] = { 8, TY_I64 },
};

static bool is_foreign(int code) { return code >= INT16 && code <= UINT64; }
static int loaded_dtype(int code) { return is_foreign(code) ? foreign[code].dtype : code; }
static size_t stored_size(int code)
{
  return is_foreign(code) ? foreign[code].size : dtype_size(code);
}

static int take_dtype(struct cursor *r, int32_t *code)
{
  TRY(take_i32(r, code, "a type code"));
  return stored_size(*code) ? TY_OK : fail_corrupt(r, "unknown type code %d", *code);
}

/* Counts the elements of an array, all of which the file must still hold. */
static int stored_count(struct cursor *r, const struct shape *s, int code, int64_t *out)
{
  *out = count_elements(s);
  bool fits = *out >= 0 && (uint64_t)*out <= bytes_left(r) / stored_size(code);
  return fits ? TY_OK : fail_corrupt(r, "the file ends within the elements of an array");
}

/* Widens n numbers of a foreign type in place. They are at the end of the memory of the wide ones,
** so that each is read before it is overwritten. */
static int widen_values(struct cursor *r, char *p, int64_t n, int code)
{
  const size_t size = foreign[code].size, wide = dtype_size(foreign[code].dtype);
  const char *from = p + (size_t)n * (wide - size);
  for (int64_t i = 0; i < n; i++, from += size, p += wide) {
    int16_t i16;
    uint16_t u16;
    uint32_t u32;
    int64_t v;
    switch (code) {
    case INT16:  memcpy(&i16, from, size), v = i16; break;
    case UINT16: memcpy(&u16, from, size), v = u16; break;
    case UINT32: memcpy(&u32, from, size), v = u32; break;
    default:     memcpy(&v, from, size);
    }
    if (code == UINT64 && v < 0)
      return fail(TY_EUNSUPPORTED, "%s: a uint64 of %llu does not fit into int64", r->name,
          (unsigned long long)v);
    const int32_t narrow = (int32_t)v;
    if (wide == sizeof narrow)
      memcpy(p, &narrow, sizeof narrow);
    else
      memcpy(p, &v, sizeof v);
  }
  return TY_OK;
}

/* Reads n elements into memory for n of loaded_dtype(code). Bools become 0 or 1. */
static int take_elements(struct cursor *r, void *p, int64_t n, int code, const char *what)
{
  const size_t size = stored_size(code), wide = dtype_size(loaded_dtype(code));
  TRY(take_bytes(r, (char *)p + (size_t)n * (wide - size), (uint64_t)n * size, what));
  if (is_foreign(code)) return widen_values(r, p, n, code);
  if (code == TY_BOOL) mend_bools(p, (size_t)n);
  return TY_OK;
}

/* Reads the fields before the shape, and the shape. */
static int take_version(struct cursor *r, struct record *x)
{
  uint32_t first;
  TRY(take_u32(r, &first, "an array"));
  bool modern = first == V2 || first == V3;
  if (!modern && first != V1) {
    if (first > TY_MAXDIM)
      return fail_corrupt(r,
          "an array begins with 0x%08x: neither a known version nor a number of dimensions", first);
    x->shape.ndim = (int32_t)first;
    return take_dims(r, &x->shape, true);
  }
  x->version = first;
  if (modern) TRY(take_i32(r, &x->storage, "a storage type"));
  if (x->storage < DENSE || x->storage > CSR)
    return fail_corrupt(r, "unknown storage type %d", x->storage);
  if (x->storage != DENSE) TRY(take_shape(r, &x->stored));
  TRY(take_shape(r, &x->shape));
  if (x->shape.ndim < 0 && first != V3)
    return fail_corrupt(r, "an array of %d dimensions", x->shape.ndim);
  return TY_OK;
}

static int take_head(struct cursor *r, struct record *x)
{
  int32_t device;
  TRY(take_version(r, x));
  if (x->shape.ndim < 0 || (x->shape.ndim == 0 && x->version != V3)) {
    x->absent = true;
    return TY_OK;
  }
  if (x->shape.ndim == 0) x->shape = (struct shape){ 1, { 1 } }; /* a scalar */
  TRY(take_i32(r, &device, "a device"));
  TRY(take_i32(r, &device, "a device"));
  TRY(take_dtype(r, &x->code));
  for (int i = 0; i < x->storage; i++) { /* row_sparse has one index array, csr two */
    TRY(take_dtype(r, &x->index[i].code));
    TRY(take_shape(r, &x->index[i].shape));
    bool shaped = x->index[i].shape.ndim >= 1 && x->stored.ndim >= 1;
    if (!shaped) return fail_corrupt(r, "a sparse array without a shape of what is stored");
  }
  return TY_OK;
}

static int new_tensor(const struct record *x, ty_tensor **out)
{
  ty_desc d = { .dtype = loaded_dtype(x->code), .device = TY_CPU, .ndim = x->shape.ndim };
  memcpy(d.dim, x->shape.dim, sizeof d.dim);
  return ty_tensor_new(&d, out);
}

static int take_dense(struct cursor *r, struct record *x, ty_tensor **out)
{
  int64_t n;
  TRY(stored_count(r, &x->shape, x->code, &n));
  if (!n) {
    x->absent = true;
    return TY_OK;
  }
  TRY(new_tensor(x, out));
  int code = take_elements(r, tensor_at(*out), n, x->code, "the elements of an array");
  if (code) ty_tensor_free(*out), *out = NULL;
  return code;
}

/* -- sparse records ---------------------------------------------------------------------------- */

/* Reads one stored array into memory of its own. */
static int take_part(struct cursor *r, const struct shape *s, int code, char **out, int64_t *n)
{
  TRY(stored_count(r, s, code, n));
  *out = mem_new((size_t)*n * dtype_size(loaded_dtype(code)));
  NEED(*out, TY_EMEMORY, "out of memory");
  return take_elements(r, *out, *n, code, "the elements of a sparse array");
}

static int take_index(struct cursor *r, const struct record *x, int i, int64_t **out, int64_t *n)
{
  char *raw = NULL;
  int code = take_part(r, &x->index[i].shape, x->index[i].code, &raw, n);
  if (!code && !(*out = NEWS(int64_t, *n))) code = fail(TY_EMEMORY, "out of memory");
  if (!code) dtype_convert(*out, TY_I64, raw, loaded_dtype(x->index[i].code), *n);
  mem_free(raw);
  return code;
}

static int64_t row_elements(const struct shape *s)
{
  struct shape row = { s->ndim - 1, { 0 } };
  for (int i = 1; i < s->ndim; i++) row.dim[i - 1] = s->dim[i];
  return count_elements(&row);
}

/* Returns the shape of the stored elements, derived from the index arrays. */
static struct shape stored_shape(const struct record *x)
{
  if (x->storage == CSR) return x->index[1].shape;
  struct shape rows = x->shape;
  rows.dim[0] = count_elements(&x->index[0].shape);
  return rows;
}

/* What a sparse record stores: elements, and its one or two index arrays as 64-bit integers. */
struct stored {
  char *value;
  int64_t *index[2];
  int64_t n[2];
};

static int fill_rows(struct cursor *r, const struct record *x, const struct stored *s, char *dst)
{
  int64_t rows = x->shape.dim[0];
  size_t size = (size_t)row_elements(&x->shape) * dtype_size(loaded_dtype(x->code));
  for (int64_t i = 0; i < s->n[0]; i++) {
    int64_t row = s->index[0][i];
    if (row < 0 || row >= rows)
      return fail_corrupt(r, "a row_sparse array lists row %lld", (long long)row);
    memcpy(dst + (size_t)row * size, s->value + (size_t)i * size, size);
  }
  return TY_OK;
}

static int fill_csr(struct cursor *r, const struct record *x, const struct stored *s, char *dst)
{
  size_t size = dtype_size(loaded_dtype(x->code));
  int64_t rows = x->shape.dim[0], width = x->shape.dim[1], most = s->n[1];
  const int64_t *start = s->index[0], *column = s->index[1];
  if (x->shape.ndim == 2 && s->n[0] == 0 && most == 0) return TY_OK; /* zeros */
  if (x->shape.ndim != 2 || s->n[0] != rows + 1)
    return fail_corrupt(r, "a csr array lacks starts of rows");
  for (int64_t i = 0; i < rows; i++) {
    bool good = start[i] >= 0 && start[i + 1] >= start[i] && start[i + 1] <= most;
    if (!good) return fail_corrupt(r, "row %lld of a csr array has no valid extent", (long long)i);
    for (int64_t k = start[i]; k < start[i + 1]; k++) {
      int64_t c = column[k];
      if (c < 0 || c >= width)
        return fail_corrupt(r, "a csr array lists column %lld", (long long)c);
      memcpy(dst + (size_t)(i * width + c) * size, s->value + (size_t)k * size, size);
    }
  }
  return TY_OK;
}

/* Makes the dense array of a sparse one. It may be larger than the stored elements, within the
** limit that the head of this file gives. */
static int sparse_tensor(struct cursor *r, const struct record *x, ty_tensor **out)
{
  int64_t n = count_elements(&x->shape);
  size_t size = dtype_size(loaded_dtype(x->code));
  uint64_t most = ((uint64_t)64 << 20) + r->size * 4 - r->dense;
  if (n < 0 || (uint64_t)n > most / size)
    return fail(TY_EUNSUPPORTED, "%s: a %s array is too large to be made dense", r->name,
        x->storage == CSR ? "csr" : "row_sparse");
  r->dense += (uint64_t)n * size;
  TRY(new_tensor(x, out));
  memset(tensor_at(*out), 0, desc_bytes(&(*out)->d));
  return TY_OK;
}

static int take_sparse(struct cursor *r, struct record *x, ty_tensor **out)
{
  struct stored s = { 0 };
  const struct shape stored = stored_shape(x);
  int64_t values;
  int code = take_part(r, &stored, x->code, &s.value, &values);
  for (int i = 0; i < x->storage && !code; i++) code = take_index(r, x, i, &s.index[i], &s.n[i]);
  if (!code && count_elements(&x->shape) == 0)
    x->absent = true;
  else if (!code)
    code = sparse_tensor(r, x, out);
  if (!code && *out) code = (x->storage == CSR ? fill_csr : fill_rows)(r, x, &s, tensor_at(*out));
  if (code) ty_tensor_free(*out), *out = NULL;
  mem_free(s.value);
  mem_free(s.index[0]);
  mem_free(s.index[1]);
  return code;
}

/* -- a file ------------------------------------------------------------------------------------ */

struct loaded { ty_tensor **tensor; int n, cap; };    /* NULL: an absent array */

static int take_record(struct cursor *r, struct loaded *l)
{
  struct record x = { 0 };
  NEED(GROW(l->tensor, l->n, l->cap), TY_EMEMORY, "out of memory");
  l->tensor[l->n] = NULL;
  TRY(take_head(r, &x));
  if (!x.absent) TRY((x.storage == DENSE ? take_dense : take_sparse)(r, &x, &l->tensor[l->n]));
  l->n++;
  return TY_OK;
}

static int put_named(struct cursor *r, struct loaded *l, ty_bag *b)
{
  for (int i = 0; i < l->n; i++) {
    uint64_t length;
    TRY(take_u64(r, &length, "the length of a name"));
    if (length > bytes_left(r))
      return fail_corrupt(r, "a name of %llu bytes", (unsigned long long)length);
    char *name = mem_new(length + 1);
    NEED(name, TY_EMEMORY, "out of memory");
    int code = take_bytes(r, name, length, "a name");
    if (!code && strlen(name) != length) code = fail_corrupt(r, "a name contains a zero byte");
    if (!code && l->tensor[i]) code = ty_bag_put(b, name, l->tensor[i]);
    mem_free(name);
    TRY(code);
  }
  return TY_OK;
}

static int put_numbered(struct cursor *r, struct loaded *l, ty_bag *b)
{
  char name[16];
  for (int i = 0; i < l->n; i++) {
    if (!l->tensor[i])
      return fail(TY_EFORMAT, "%s: array %d of the list has no elements", r->name, i);
    snprintf(name, sizeof name, "%d", i);
    TRY(ty_bag_put(b, name, l->tensor[i]));
  }
  return TY_OK;
}

static int check_magic(struct cursor *r)
{
  uint8_t b[FILE_KIND_HEAD] = { 0 };
  uint64_t n = MIN(bytes_left(r), sizeof(uint64_t)), magic = 0;
  TRY(take_bytes(r, b, n, "the header"));
  for (int i = 7; i >= 0; i--) magic = magic << 8 | b[i];
  if (n == 8 && magic == LIST_MAGIC) return TY_OK;
  const uint64_t more = MIN(bytes_left(r), sizeof b - n);
  TRY(take_bytes(r, b + n, more, "the header"));
  const char *kind = file_kind(b, n + more);
  if (kind) return fail(TY_EFORMAT, "%s: this is not a file of arrays but %s", r->name, kind);
  return fail(TY_EFORMAT, "%s: this is not a file of arrays: %s", r->name,
      n < 8 ? "it has not even a header" : "it does not begin with 0x112");
}

static int take_all(struct cursor *r, struct loaded *l, ty_bag *b, int *named)
{
  uint64_t reserved, count, names;
  TRY(check_magic(r));
  TRY(take_u64(r, &reserved, "the header"));
  r->crc = 0;
  TRY(take_u64(r, &count, "the header"));
  if (count > bytes_left(r) / 4)
    return fail_corrupt(r, "%llu arrays cannot be in this file", (unsigned long long)count);
  for (uint64_t i = 0; i < count; i++) TRY(take_record(r, l));
  TRY(take_u64(r, &names, "the number of names"));
  if (names && names != count)
    return fail_corrupt(
        r, "%llu names for %llu arrays", (unsigned long long)names, (unsigned long long)count);
  *named = names > 0;
  TRY((names ? put_named : put_numbered)(r, l, b));
  if (is_checksum(reserved) && reserved != checksum_word(r->crc))
    return fail_corrupt(r, "the file is damaged: its checksum is not that of its contents");
  return TY_OK;
}

static int load_params(struct cursor *r, ty_bag **out, int *named)
{
  struct loaded l = { 0 };
  ty_bag *b;
  TRY(ty_bag_new(&b));
  int code = take_all(r, &l, b, named);
  for (int i = 0; i < l.n; i++) ty_tensor_free(l.tensor[i]);
  mem_free(l.tensor);
  if (code)
    ty_bag_free(b);
  else
    *out = b;
  return code;
}

int ty_params_parse(const void *data, size_t bytes, ty_bag **out, int *named)
{
  NEED((data || !bytes) && out && named, TY_ETYPE,
      "ty_params_parse: the bytes or the result's place is missing");
  struct cursor r = { .name = "buffer", .data = data, .size = bytes };
  return load_params(&r, out, named);
}

int ty_params_load(const char *path, ty_bag **out, int *named)
{
  NEED(path && out && named, TY_ETYPE, "ty_params_load: the path or the result's place is missing");
  struct stat st;
  int fd = sys_open(path, O_RDONLY, 0), code = TY_OK;
  NEED(fd >= 0, TY_EIO, "cannot open '%s': %s", path, strerror(errno));
  struct cursor r = { .name = path, .file = sys_fdopen(fd, "rb") };
  if (!r.file || fstat(fd, &st))
    code = fail(TY_EIO, "cannot read '%s': %s", path, strerror(errno));
  else if (!S_ISREG(st.st_mode))
    code = fail(TY_EIO, "cannot read '%s': it is not a regular file", path);
  if (!code) {
    r.size = (uint64_t)st.st_size;
    code = load_params(&r, out, named);
  }
  if (r.file)
    fclose(r.file);
  else
    sys_close(fd);
  return code;
}

/* -- writing ----------------------------------------------------------------------------------- */

struct sink { FILE *file; uint32_t crc; };            /* a failure is kept by the stream */

static void put_bytes(struct sink *f, const void *p, size_t n)
{
  if (!n) return;
  fwrite(p, 1, n, f->file);
  f->crc = (uint32_t)crc32_z(f->crc, p, n);
}

static void put_u32(struct sink *f, uint32_t v)
{
  uint8_t b[4] = { (uint8_t)v, (uint8_t)(v >> 8), (uint8_t)(v >> 16), (uint8_t)(v >> 24) };
  put_bytes(f, b, sizeof b);
}

static void put_u64(struct sink *f, uint64_t v)
{
  put_u32(f, (uint32_t)v);
  put_u32(f, (uint32_t)(v >> 32));
}

static int put_elements(struct sink *f, const ty_tensor *t)
{
  size_t n = desc_bytes(&t->d);
  if (device_kind(t->d.device) != TY_GPU) {
    put_bytes(f, tensor_at(t), n);
    return TY_OK;
  }
  char *bytes = mem_new(n);
  NEED(bytes, TY_EMEMORY, "out of memory");
  int code = device_ops(t->d.device)->copy(TY_CPU, bytes, t->d.device, tensor_at(t), n);
  if (!code) put_bytes(f, bytes, n);
  mem_free(bytes);
  return code;
}

static int put_record(struct sink *f, const ty_tensor *t)
{
  int kind = device_kind(t->d.device);
  put_u32(f, V2);
  put_u32(f, DENSE);
  put_u32(f, (uint32_t)t->d.ndim);
  for (int i = 0; i < t->d.ndim; i++) put_u64(f, (uint64_t)t->d.dim[i]);
  put_u32(f, kind == TY_GPU ? 2 : kind == TY_PINNED ? 3 : 1);
  put_u32(f, (uint32_t)device_id(t->d.device));
  put_u32(f, (uint32_t)t->d.dtype);
  return put_elements(f, t);
}

static int bag_size(const ty_bag *b)
{
  int n = 0;
  while (!ty_bag_at((ty_bag *)b, n, NULL, NULL)) n++;
  return n;
}

static int put_contents(struct sink *f, const ty_bag *b, int n, int named)
{
  const char *name;
  ty_tensor *t;
  put_u64(f, (uint64_t)n);
  for (int i = 0; i < n; i++) {
    TRY(ty_bag_at((ty_bag *)b, i, NULL, &t));
    TRY(put_record(f, t));
  }
  put_u64(f, named ? (uint64_t)n : 0);
  for (int i = 0; i < n && named; i++) {
    TRY(ty_bag_at((ty_bag *)b, i, &name, NULL));
    put_u64(f, strlen(name));
    put_bytes(f, name, strlen(name));
  }
  return TY_OK;
}

/* Writes all arrays. The checksum is filled in last, if the file allows seeking back (not a
** pipe). */
static int put_all(struct target *to, const ty_bag *b, int n, int flags)
{
  bool named = flags & TY_PARAMS_NAMED, checked = flags & TY_PARAMS_CHECKED;
  struct sink f = { to->file, 0 };
  put_u64(&f, LIST_MAGIC);
  put_u64(&f, 0);
  f.crc = 0;
  TRY(put_contents(&f, b, n, named));
  if (!to->beside || !checked) return TY_OK;
  const uint64_t sum = checksum_word(f.crc);
  if (!fseeko(to->file, 8, SEEK_SET)) put_u64(&f, sum);
  return TY_OK;
}

int ty_params_save(const char *path, const ty_bag *b, int flags)
{
  NEED(path && b, TY_ETYPE, "ty_params_save: the path or the arrays are missing");
  int n = bag_size(b);
  for (int i = 0; i < n; i++) { /* failed arrays are found before a file is touched */
    ty_tensor *t;
    TRY(ty_bag_at((ty_bag *)b, i, NULL, &t));
    TRY(ty_tensor_wait(t, 0));
  }
  struct target t;
  TRY(target_open(&t, path));
  return target_close(&t, put_all(&t, b, n, flags));
}
