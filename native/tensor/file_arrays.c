/* file_arrays.c - arrays in files of other engines, read when they are first used.
**
** A tensor over a file has a storage without bytes (storage_lazy); its first use, by a task or the
** host, reads them (`load`). So a large file opens at once, and only arrays that are used take
** memory. Files are read with pread, not mapped: one that has become shorter meanwhile makes that
** use fail, not the process die of a signal.
*/
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include "base/system.h"
#include "tensor/file_encodings.h"

struct ty_file {
  int32_t refs;
  int fd;                                             /* -1: `bytes` */
  int64_t size;                                       /* bytes when it was opened */
  char *path;
  uint8_t *bytes;                                     /* of a file in memory */
};

/* One tensor's part of a file. */
struct file_part {
  ty_file *file;
  int64_t at;                                         /* byte of element 0 */
  const struct file_encoding *encoding;
  bool swapped;                                       /* big-endian */
  int unit;                                           /* bytes of a unit */
  int elements;                                       /* elements of a unit */
  ty_desc d;
  bool strided;
  int64_t stride[TY_MAXDIM];                          /* elements */
};

/* bytes read at a time where elements are gathered or converted */
enum { SPAN_BYTES = 1 << 20 };

/* -- files ------------------------------------------------------------------------------------- */

int ty_file_open(const char *path, ty_file **out)
{
  NEED(path && out, TY_ETYPE, "ty_file_open: the path or the result's place is missing");
  struct stat s;
  ty_file *f = NEW(ty_file);
  NEED(f, TY_EMEMORY, "out of memory");
  *f = (ty_file){ .refs = 1, .fd = -1, .path = mem_text(path) };
  int code = f->path ? TY_OK : fail(TY_EMEMORY, "out of memory");
  if (!code && (f->fd = sys_open(path, O_RDONLY | O_CLOEXEC, 0)) < 0)
    code = fail(TY_EIO, "cannot read the file: %s: %s", path, strerror(errno));
  if (!code && fstat(f->fd, &s)) code = fail(TY_EIO, "'%s': %s", path, strerror(errno));
  if (!code && !S_ISREG(s.st_mode)) code = fail(TY_EIO, "'%s' is no file", path);
  if (code) return ty_file_free(f), code;
  f->size = (int64_t)s.st_size;
  *out = f;
  return TY_OK;
}

/* Opens `path` if it is in the folder `root`; links in both are resolved. name: what the caller
** gave, for errors. */
static int open_inside(const char *root, const char *path, const char *name, ty_file **out)
{
  const size_t n = strlen(root);
  bool inside = !strncmp(path, root, n) && (path[n] == '/' || (n && root[n - 1] == '/'));
  NEED(inside, TY_EFORMAT, "'%s' leads out of the folder '%s'", name, root);
  return ty_file_open(path, out);
}

int ty_file_open_in(const char *folder, const char *name, ty_file **out)
{
  NEED(folder && name && out, TY_ETYPE,
      "ty_file_open_in: the folder, the name or the result's place is missing");
  struct text t = { 0 };
  text_add(&t, "%s/%s", folder, name);
  const char *joined = text_whole(&t);
  char *root = NULL, *path = NULL;
  int code = joined && *name != '/' ? TY_OK
      : joined ? fail(TY_EFORMAT, "'%s' leads out of the folder '%s'", name, folder)
               : fail(TY_EMEMORY, "out of memory");
  if (!code && !(root = sys_realpath(folder)))
    code = fail(TY_EIO, "'%s': %s", folder, strerror(errno));
  if (!code && !(path = sys_realpath(joined)))
    code = fail(TY_EIO, "cannot open '%s': %s", joined, strerror(errno));
  if (!code) code = open_inside(root, path, name, out);
  free(root);
  free(path);
  text_done(&t);
  return code;
}

int ty_file_copy(const void *data, size_t bytes, ty_file **out)
{
  NEED((data || !bytes) && out, TY_ETYPE,
      "ty_file_copy: the bytes or the result's place is missing");
  ty_file *f = NEW(ty_file);
  NEED(f, TY_EMEMORY, "out of memory");
  *f = (ty_file){ .refs = 1, .fd = -1, .size = (int64_t)bytes, .path = mem_text("the bytes"),
    .bytes = mem_new(MAX(bytes, 1)) };
  if (!f->path || !f->bytes) return ty_file_free(f), fail(TY_EMEMORY, "out of memory");
  if (bytes) memcpy(f->bytes, data, bytes);
  *out = f;
  return TY_OK;
}

ty_file *file_keep(ty_file *f)
{
  __atomic_add_fetch(&f->refs, 1, __ATOMIC_RELAXED);
  return f;
}

void ty_file_free(ty_file *f)
{
  if (!f || __atomic_sub_fetch(&f->refs, 1, __ATOMIC_ACQ_REL)) return;
  if (f->fd >= 0) sys_close(f->fd);
  mem_free(f->path);
  mem_free(f->bytes);
  mem_free(f);
}

int ty_file_size(ty_file *f, int64_t *bytes)
{
  NEED(f && bytes, TY_ETYPE, "ty_file_size: the file or the result's place is missing");
  *bytes = f->size;
  return TY_OK;
}

static int check_range(const ty_file *f, int64_t at, uint64_t n)
{
  NEED(at >= 0 && at <= f->size && n <= (uint64_t)(f->size - at), TY_EFORMAT,
      "'%s': %llu bytes at byte %lld are asked for, but the file has %lld", f->path,
      (unsigned long long)n, (long long)at, (long long)f->size);
  return TY_OK;
}

int ty_file_read(ty_file *f, int64_t at, void *to, size_t n)
{
  NEED(f && (to || !n), TY_ETYPE, "ty_file_read: the file or the destination is missing");
  TRY(check_range(f, at, n));
  if (f->bytes) {
    if (n) memcpy(to, f->bytes + at, n);
    return TY_OK;
  }
  for (size_t done = 0; done < n;) {
    ssize_t got = sys_pread(f->fd, (char *)to + done, n - done, (off_t)(at + (int64_t)done));
    NEED(got >= 0, TY_EIO, "'%s': %s", f->path, strerror(errno));
    NEED(got, TY_EIO, "'%s' has no byte %lld: it has become shorter since it was opened", f->path,
        (long long)at + (long long)done);
    done += (size_t)got;
  }
  return TY_OK;
}

/* -- elements ---------------------------------------------------------------------------------- */

static void swap_bytes(void *data, size_t each, size_t n)
{
  uint8_t *p = data;
  for (size_t i = 0; i < n; i++, p += each)
    for (size_t a = 0, b = each - 1; a < b; a++, b--) {
      uint8_t byte = p[a];
      p[a] = p[b];
      p[b] = byte;
    }
}

/* Elements of a strided array, read through a window of the file. */
struct file_window { uint8_t *bytes; int64_t begin, end; };

static int read_element(const struct file_part *p, struct file_window *w, int64_t at, void *to)
{
  if (at < w->begin || at + p->unit > w->end) {
    int64_t n = MIN((int64_t)SPAN_BYTES, p->file->size - at);
    TRY(ty_file_read(p->file, at, w->bytes, (size_t)n));
    w->begin = at;
    w->end = at + n;
  }
  memcpy(to, w->bytes + (at - w->begin), (size_t)p->unit);
  return TY_OK;
}

/* Decodes n units to `to`, which is `units` if they need no decoding. Swaps big-endian ones
** first. */
static int decode_units(const struct file_part *p, uint8_t *units, uint8_t *to, int64_t n)
{
  if (p->swapped) swap_bytes(units, (size_t)p->unit, (size_t)n);
  return p->encoding->decode ? p->encoding->decode(to, units, n) : TY_OK;
}

/* Reads elements that are not contiguous in the file, and decodes them if necessary. */
static int read_strided(const struct file_part *p, uint8_t *to)
{
  const size_t each = dtype_size(p->d.dtype);
  int64_t index[TY_MAXDIM] = { 0 }, at = p->at;
  struct file_window w = { mem_new(SPAN_BYTES), 0, 0 };
  NEED(w.bytes, TY_EMEMORY, "out of memory");
  int code = TY_OK;
  for (int64_t n = desc_count(&p->d); n > 0 && !code; n--, to += each) {
    uint8_t unit[8];
    uint8_t *bytes = p->encoding->decode ? unit : to;
    code = read_element(p, &w, at, bytes);
    if (!code) code = decode_units(p, bytes, to, 1);
    for (int k = p->d.ndim - 1; k >= 0; k--) {
      at += p->stride[k] * p->unit;
      if (++index[k] < p->d.dim[k]) break;
      at -= index[k] * p->stride[k] * p->unit;
      index[k] = 0;
    }
  }
  mem_free(w.bytes);
  return code;
}

/* Reads and decodes contiguous elements, piece by piece. */
static int read_decoded(const struct file_part *p, uint8_t *to)
{
  const int64_t most = SPAN_BYTES / p->unit;
  const size_t each = dtype_size(p->d.dtype) * (size_t)p->elements;
  uint8_t *units = mem_new(SPAN_BYTES);
  NEED(units, TY_EMEMORY, "out of memory");
  int code = TY_OK;
  int64_t at = p->at;
  for (int64_t left = desc_count(&p->d) / p->elements; left > 0 && !code;) {
    int64_t n = MIN(most, left);
    code = ty_file_read(p->file, at, units, (size_t)(n * p->unit));
    if (!code) code = decode_units(p, units, to, n);
    at += n * p->unit;
    to += (size_t)n * each;
    left -= n;
  }
  mem_free(units);
  return code;
}

static int read_plain(const struct file_part *p, uint8_t *to, size_t bytes)
{
  TRY(ty_file_read(p->file, p->at, to, bytes));
  return decode_units(p, to, to, (int64_t)bytes / p->unit);
}

static int load_file_array(void *context, void *to, size_t bytes)
{
  const struct file_part *p = context;
  if (p->strided)
    TRY(read_strided(p, to));
  else if (p->encoding->decode)
    TRY(read_decoded(p, to));
  else
    TRY(read_plain(p, to, bytes));
  if (p->d.dtype == TY_BOOL) mend_bools(to, bytes);
  return TY_OK;
}

static void drop_file_array(void *context)
{
  struct file_part *p = context;
  ty_file_free(p->file);
  mem_free(p);
}

/* -- tensors ----------------------------------------------------------------------------------- */

/* Checks that all elements are within the file. */
static int check_part(const struct file_part *p)
{
  if (!p->strided)
    return check_range(p->file, p->at,
        (uint64_t)(desc_count(&p->d) / p->elements) * (uint64_t)p->unit);
  int64_t first = p->at, end = p->at + p->unit;
  for (int k = 0; k < p->d.ndim; k++) {
    int64_t span;
    bool wide = __builtin_mul_overflow(p->stride[k], (p->d.dim[k] - 1) * p->unit, &span) ||
        __builtin_add_overflow(span < 0 ? first : end, span, span < 0 ? &first : &end);
    NEED(!wide, TY_EFORMAT, "'%s': a stride of %lld elements", p->file->path,
        (long long)p->stride[k]);
  }
  TRY(check_range(p->file, first, 0));
  return check_range(p->file, first, (uint64_t)(end - first));
}

/* Checks that the encoding allows this dtype, shape and strides. */
static int check_encoding(const struct file_part *p)
{
  const struct file_encoding *e = p->encoding;
  if (!e->name) return TY_OK;
  NEED(p->d.dtype == e->dtype, TY_EDTYPE, "elements of type %s are read as %s, not %s", e->name,
      dtype_name(e->dtype), dtype_name(p->d.dtype));
  NEED(p->elements == 1 || (!p->strided && !p->swapped), TY_EVALUE,
      "blocks of %s have no strides and no byte order", e->name);
  int64_t row = p->d.dim[p->d.ndim - 1];
  NEED(row % p->elements == 0, TY_ESHAPE, "rows of %lld elements are no blocks of %d (%s)",
      (long long)row, p->elements, e->name);
  return TY_OK;
}

int ty_file_tensor(ty_file *f, int64_t at, const ty_desc *d, const int64_t *stride, int encoding,
    ty_tensor **out)
{
  NEED(f && d && out, TY_ETYPE,
      "ty_file_tensor: the file, the descriptor or the result's place is missing");
  const struct file_encoding *row = file_encoding_find(encoding & ~TY_FILE_SWAPPED);
  NEED(row, TY_EVALUE, "ty_file_tensor: there is no encoding %d", encoding);
  NEED(device_kind(d->device) != TY_GPU, TY_EDEVICE,
      "ty_file_tensor: arrays of files are on the host");
  TRY(tensor_check_desc(d));
  struct file_part *p = NEW(struct file_part);
  NEED(p, TY_EMEMORY, "out of memory");
  *p = (struct file_part){ .file = file_keep(f), .at = at, .encoding = row, .d = *d };
  p->swapped = encoding & TY_FILE_SWAPPED;
  p->unit = row->name ? row->bytes : (int)dtype_size(d->dtype);
  p->elements = row->elements;
  p->strided = stride != NULL;
  /* an axis of one element may come with any stride */
  for (int k = 0; stride && k < d->ndim; k++) p->stride[k] = d->dim[k] > 1 ? stride[k] : 0;
  struct storage *s;
  int code = check_encoding(p);
  if (!code) code = check_part(p);
  if (!code)
    code = storage_lazy(d->device, desc_bytes(d),
        (struct storage_source){ load_file_array, drop_file_array, p }, &s);
  if (code) return drop_file_array(p), code;
  code = tensor_on(d, s, 0, out);
  storage_free(s);
  return code;
}
