/* symbol_reader.h - state of reading a symbol file (symbol_read.c, symbol_node.c) and of upgrading
** old ones (symbol_upgrade.c). The checked text takes the place of a parsed list: each node is read
** from it when it is needed. */
#pragma once
#include "graph/graph.h"
#include "base/json.h"

struct input { int node, out, version; };
/* A node as the file has it, in the caller's arena. */
struct parsed_node {
  const struct op *op;                                /* NULL: unknown name, or a variable */
  const char *op_name, *name;                         /* op_name NULL: a variable */
  ty_attr *attr;                                      /* nattr of them, capacity `cap` */
  struct input *in;
  /* the list of its subgraphs in the text; NULL: none */
  const char *bodies;
  int nattr, cap, nin;
  bool has_ports;
  struct ports ports;                                 /* symbol_upgrade.c */
};
/* A node's place in the text. */
struct node_record {
  const char *at;
  union {
    const char *next;                                 /* while open: the input to read next */
    /* once built: how often operators changed it */
    int64_t changes;
  };
  int index;                                          /* once built: its index in the graph */
  int outputs;                                        /* how many are read; see file.counted */
};
/* An attribute that an operator's node of an old file sets for a variable, which may come before
** it. */
struct inherited_attr {
  const char *key, *value;
  int to, from, order;
  bool if_absent;
};
struct file {
  const char *text, *heads;
  ty_graph *g;
  struct node_record *node;
  int n, version;
  bool counted;                                       /* node_record.outputs are set */
  bool own_versions;                                  /* versions differ from counted ones */
  struct arena arena;                                 /* of `inherited` */
  struct inherited_attr *inherited;
  int ninherited, inherited_cap;
  /* bytes of the graph; bytes that all graphs of the file may still take */
  size_t taken, *left;
};

/* fields of a node */
enum { OP, NAME, INPUTS, ATTRS, ATTR, PARAM, BODIES, CONTROL, SOURCE, FIELDS };

/* -- symbol_node.c ----------------------------------------------------------------------------- */

/* Fails with TY_EFORMAT at a byte of the text: what is wrong, and what came. */
int  file_fail(const struct file *f, const char *at, const char *what, const char *got);
/* Fails with TY_EMEMORY. */
int  file_fail_memory(void);
/* Returns "a text", "a number", "a list", "an object". */
const char *file_type_name(const char *v);
/* Finds the values of the n named fields of an object: NULL for a missing one, the first of
** repeated ones. The first `required` names must be present. */
int  file_read_fields(const struct file *f, const char *object, const char *const *names, int n,
    int required, const char **out);
/* Reads an integer of 0 or more. what: its description in an error. */
int  file_read_number(const struct file *f, const char *v, const char *what, int *out);
/* Reads [node, output] or [node, output, version]. */
int  file_read_entry(const struct file *f, const char *v, struct input *out);
/* Returns the number of items of a list. */
int  file_count_items(const char *list);
/* Finds the values of a node's fields. v: FIELDS pointers. */
int  file_node_fields(const struct file *f, int node, const char **v);
/* Returns whether a node is a variable (op "null"). */
bool file_is_variable(const struct file *f, int node);
/* Reads a node into the arena. */
int  file_parse_node(const struct file *f, int node, struct arena *a, struct parsed_node *out);
/* Returns an attribute's value; NULL: the node does not have it. */
const char *parsed_attr(const struct parsed_node *d, const char *key);
/* Appends an attribute; the texts are borrowed. */
int  parsed_add_attr(struct parsed_node *d, struct arena *a, const char *key, const char *value);

/* -- symbol_upgrade.c -------------------------------------------------------------------------- */

/* Collects the attributes that operators set for variables. Call it before any upgrade_attrs. */
int upgrade_begin(struct file *f);
/* Upgrades the attributes of a node that was just parsed. */
int upgrade_attrs(const struct file *f, int node, struct parsed_node *d, struct arena *a);
/* Returns the initialiser that an operator sets for the variable of an input; NULL: none. */
const char *upgrade_initialiser(const struct parsed_node *d, int input);
