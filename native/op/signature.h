/* signature.h - the texts of an operator (op.h), parsed to lists: its ports, what its gradient
** operator reads, which outputs may share memory with which inputs. Each distinct text is parsed
** once, those of registered operators when the registry is filled. Lists are shared and live as
** long as the process. */
#pragma once
#include "op/op.h"

enum { READ_HEAD = 'g', READ_IN = 'i', READ_OUT = 'o' };
/* What is read: head gradient, input or output k, or all of that kind. changed: backward changes it
** in place. */
struct read { char kind; bool all, changed; int k; };
/* heads, changes: whether any of them is a head gradient, is changed. */
struct reads { int n; bool heads, changes; const struct read *read; };

/* A port as the text has it. */
struct port_text {
  const char *name;
  /* "name*count": the parameter that says how many there are; "": as many as are passed; NULL:
  ** one. */
  const char *count;
  bool mutated, overwritten, hidden, secret;
};
struct port_list {
  int n;
  /* index of the last port with a count; -1: none */
  int counted;
  bool changes;                                       /* one of them is mutated */
  const struct port_text *port;
  /* the ports, if none has a count; else NULL */
  const struct port *fixed;
  /* numbered[k]: 2^k numbered ports, made when needed, if the text is a single port with a count */
  const struct port **numbered;
};

/* Output `out` may use the memory of input `in`. every > 0: output k that of input k * every. */
struct shared_pair { int out, in; };
struct in_place { int every, n; const struct shared_pair *pair; };

/* Finds what a text of grad reads; *out is NULL if text is. */
int find_reads(const char *text, const struct reads **out);
/* Finds what the gradient operator reads, also for formulas; *out NULL: there is no gradient. */
int op_reads(const struct op *op, const void *param, const struct reads **out);
/* Finds the inputs; with param NULL, those of op->in. */
int op_inputs(const struct op *op, const void *param, const struct port_list **out);
/* Finds what the operator, or its gradient operator, may compute in place; *out NULL: nothing. */
int op_in_place(const struct op *op, bool backward, const struct in_place **out);
bool in_place_allowed(const struct in_place *pairs, int out, int in);
/* Parses the texts of an operator that do not depend on parameters. */
int op_parse_texts(const struct op *op);

/* The operands of a gradient operator in order, for a node of nin inputs and nout outputs:
** struct read_walk w = reads_walk(r, nin, nout); while (reads_next(&w)) ... w.kind, w.k ... */
struct read_walk {
  const struct reads *reads;
  int nin, nout, i, next;
  int operand;                                        /* index among all operands */
  int k;                                              /* which head gradient, input or output */
  char kind;                                          /* READ_* */
  bool changed;
};
/* Begins a walk. */
struct read_walk reads_walk(const struct reads *r, int nin, int nout);
/* Moves to the next operand. Returns false at the end. */
bool reads_next(struct read_walk *w);
