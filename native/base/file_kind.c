/* file_kind.c - see file_kind.h. */
#include "base/file_kind.h"
#include <stdbool.h>
#include <string.h>
#include "base/base.h"

#define PICKLES "pickles can run code and are not read"

/* The bytes that a kind has at an offset. The first row that fits counts. */
struct file_mark { size_t at; const char *bytes; size_t n; const char *is; };
#define BYTES(text) text, sizeof text - 1

static const struct file_mark marks[] = {
  /* the magic number of torch.save before version 1.6, as a pickled integer */
  { 0, BYTES("\x80\x02\x8a\x0al\xfc\x9c\x46\xf9\x20j\xa8P\x19"),
    "a PyTorch file (.pt, .pth); ty.nd.load reads it" },
  { 0, BYTES("(dp"), "a Python pickle; " PICKLES },
  { 0, BYTES("(lp"), "a Python pickle; " PICKLES },
  { 0, BYTES("ccopy_reg\n"), "a Python pickle; " PICKLES },
  { 0, BYTES("}q"), "a Python pickle; " PICKLES },
  { 0, BYTES("]q"), "a Python pickle; " PICKLES },
  { 0, BYTES("\x12\1\0\0\0\0\0\0"), "a file of arrays; ty.nd.load reads it" },
  { 0, BYTES("PK\3\4"),
    "a zip archive: NumPy's (.npz) or PyTorch's (.pt, .pth); ty.nd.load reads it" },
  { 0, BYTES("\x93NUMPY"), "a NumPy array (.npy); ty.nd.load reads it" },
  { 0, BYTES("\x89HDF\r\n\x1a\n"), "an HDF5 file (Keras, h5py, MATLAB 7.3)" },
  { 0, BYTES("GGUF"), "a GGUF file (llama.cpp); ty.nd.load reads it" },
  { 0, BYTES("lmgg"), "a GGML file (llama.cpp)" },
  { 0, BYTES("tjgg"), "a GGML file (llama.cpp)" },
  { 4, BYTES("TFL3"), "a TensorFlow Lite model" },
  { 0, BYTES("\x08\x01\x12"), "a TensorFlow SavedModel" },
  { 0, BYTES("MATLAB 5.0 MAT-file"), "a MATLAB file (.mat)" },
  /* an object's tag and number, and the length and text of a class's version */
  { 0, BYTES("\4\0\0\0\1\0\0\0\3\0\0\0V 1"), "a Torch7 file (.t7); ty.torch7.load reads it" },
  { 0, BYTES("4\n1\n3\nV 1\n"), "a Torch7 file (.t7); ty.torch7.load reads it" },
  { 0, BYTES("\3\0\0\0\1\0\0\0"), "a Torch7 file (.t7); ty.torch7.load reads it" },
  { 0, BYTES("3\n1\n"), "a Torch7 file (.t7); ty.torch7.load reads it" },
  { 0, BYTES("\x0a\x23\xd7\xce"), "a file of records (.rec); ty.recordio reads it" },
  { 0, BYTES("\0\0\x08\1"), "an idx file of labels; ty.io.MNISTIter reads it" },
  { 0, BYTES("\0\0\x08\3"), "an idx file of images; ty.io.MNISTIter reads it" },
  { 0, BYTES("\xff\xd8\xff"), "a JPEG image; ty.image.imread reads it" },
  { 0, BYTES("\x89PNG"), "a PNG image; ty.image.imread reads it" },
  { 0, BYTES("\x1f\x8b"), "a gzip file; decompress it first" },
  { 0, BYTES("BZh"), "a bzip2 file; decompress it first" },
  { 0, BYTES("\xfd" "7zXZ"), "an xz file; decompress it first" },
  { 0, BYTES("\x28\xb5\x2f\xfd"), "a zstd file; decompress it first" },
  { 257, BYTES("ustar"), "a tar archive; unpack it first" },
};

static bool is_pickle(const uint8_t *head, size_t n)
{
  return n > 2 && head[0] == 0x80 && head[1] >= 2 && head[1] <= 5;
}

/* Returns whether bytes begin a model of ONNX: a protobuf without a magic number, that is
** ir_version (field 1), then another field of a ModelProto: names and versions of what wrote it,
** the graph, the operator sets. */
static bool is_onnx(const uint8_t *head, size_t n)
{
  enum { VERSIONS = 32 };
  return n > 2 && head[0] == 0x08 && head[1] > 1 && head[1] < VERSIONS &&
      memchr("\x12\x1a\x22\x3a\x42", head[2], 5);
}

/* Returns whether bytes begin a symbol's JSON, by the first character that is not a blank. */
static bool is_json(const uint8_t *head, size_t n)
{
  size_t i = 0;
  while (i < n && strchr(" \t\r\n", head[i]) && head[i]) i++;
  return i + 1 < n && head[i] == '{' && !memchr(head, 0, MIN(n, FILE_KIND_HEAD));
}

/* Returns whether bytes begin with the length of a header, and it with {" or spaces. */
static bool is_safetensors(const uint8_t *head, size_t n)
{
  return n > 9 && head[8] == '{' && (head[9] == '"' || head[9] == '}') && !head[5] && !head[6] &&
      !head[7];
}

const char *file_kind(const void *first, size_t n)
{
  const uint8_t *head = first;
  for (int i = 0; i < COUNT(marks); i++) {
    const struct file_mark *m = &marks[i];
    if (n >= m->at + m->n && !memcmp(head + m->at, m->bytes, m->n)) return m->is;
  }
  if (is_safetensors(head, n)) return "a safetensors file; ty.nd.load reads it";
  if (is_pickle(head, n)) return "a Python pickle; " PICKLES;
  if (is_onnx(head, n)) return "an ONNX model";
  if (is_json(head, n)) return "JSON text; ty.sym.load reads a network";
  return NULL;
}
