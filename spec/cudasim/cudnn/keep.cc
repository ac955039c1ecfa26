/* keep.cc - writes every graph that is planned to the folder CUDASIM_GRAPHS, as text, so that it
** can be tried with the real cuDNN (scripts/dev/cudnn_check.lua). A line for each descriptor, parts
** first: its number, its kind, then `attribute:type:count:bytes` in hexadecimal, or
** `attribute:numbers of parts`; handles are left out. */
#include "graph.h"
#include <cstdio>
#include <cstdlib>

struct Writer {
  std::map<const Bag *, int> number;
  std::string text;

  std::string value(int attribute, const std::string &bytes, int type)
  {
    std::string line = " " + std::to_string(attribute) + ":";
    if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
      for (size_t i = 0; i < bytes.size() / sizeof(Bag *); i++)
        line += (i ? "," : "") + std::to_string(number[((Bag *const *)bytes.data())[i]]);
      return line;
    }
    size_t count = bytes.size() / attribute_bytes(type);
    line += std::to_string(type) + ":" + std::to_string(count) + ":";
    char hex[3];
    for (unsigned char c : bytes) snprintf(hex, sizeof hex, "%02x", c), line += hex;
    return line;
  }

  void add(const Bag *b)
  {
    if (number.count(b)) return;
    std::string line;
    for (auto &[attribute, bytes] : b->given) {
      int type = attribute_type(b, attribute);
      if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
        for (const Bag *part : b->all<Bag *>(attribute)) add(part);
      if (type >= 0 && type != CUDNN_TYPE_HANDLE) line += value(attribute, bytes, type);
    }
    int n = (int)number.size() + 1;
    number[b] = n;
    text += std::to_string(n) + " " + std::to_string((int)b->kind) + line + "\n";
  }
};

void keep_graph(const Bag *graph)
{
  const char *folder = getenv("CUDASIM_GRAPHS");
  if (!folder || !*folder) return;
  Writer w;
  w.add(graph);
  std::string name = std::to_string(std::hash<std::string>()(w.text)) + ".graph";
  if (FILE *f = fopen((folder + std::string("/") + name).c_str(), "w")) {
    fwrite(w.text.data(), 1, w.text.size(), f);
    fclose(f);
  }
}
