/* train_test.c - a C program that trains: a graph as JSON text, weights from a file, executor,
** gradient steps.
**
** The task: decide whether a point is above the line y = x. Logistic regression must reduce the
** loss and classify the points. The weights come from a parameter file, like those of a deployed
** model.
*/
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "check.h"

enum { POINTS = 64, STEPS = 60 };

static const char graph_text[] =
  "{\"nodes\": ["
  "{\"op\": \"null\", \"name\": \"data\", \"inputs\": []},"
  "{\"op\": \"null\", \"name\": \"fc_weight\", \"attrs\": {\"num_hidden\": \"2\"}, \"inputs\": []},"
  "{\"op\": \"null\", \"name\": \"fc_bias\", \"attrs\": {\"num_hidden\": \"2\"}, \"inputs\": []},"
  "{\"op\": \"FullyConnected\", \"name\": \"fc\", \"attrs\": {\"num_hidden\": \"2\"},"
  " \"inputs\": [[0, 0, 0], [1, 0, 0], [2, 0, 0]]},"
  "{\"op\": \"null\", \"name\": \"label\", \"inputs\": []},"
  "{\"op\": \"SoftmaxOutput\", \"name\": \"softmax\", \"inputs\": [[3, 0, 0], [4, 0, 0]]}],"
  "\"arg_nodes\": [0, 1, 2, 4], \"node_row_ptr\": [0, 1, 2, 3, 4, 5, 6], \"heads\": [[5, 0, 0]],"
  "\"attrs\": {\"mxnet_version\": [\"int\", 10901]}}";

static float points[POINTS][2], labels[POINTS];

static void make_points(void)
{
  unsigned state = 1;
  for (int i = 0; i < POINTS; i++) {
    for (int k = 0; k < 2; k++) {
      state = state * 1103515245u + 12345u;
      points[i][k] = (float)(state >> 8 & 0xffff) / 32768.0f - 1.0f;
    }
    labels[i] = points[i][1] > points[i][0] ? 1.0f : 0.0f;
  }
}

static void put_array(
    ty_bag *bag, const char *name, int ndim, int64_t n, int64_t m, const float *values)
{
  ty_desc d = { .dtype = TY_F32, .device = TY_CPU, .ndim = ndim, .dim = { n, m } };
  ty_tensor *t = NULL;
  RUN(ty_tensor_new(&d, &t));
  RUN(ty_tensor_write(t, values, sizeof(float) * (size_t)(n * (ndim > 1 ? m : 1))));
  RUN(ty_bag_put(bag, name, t));
  ty_tensor_free(t);
}

/* Writes weights to a file and returns the bag that is read from it. */
static ty_bag *stored_weights(void)
{
  static const float weight[4] = { 0.1f, -0.2f, 0.05f, 0.3f }, bias[2] = { 0.5f, -0.5f };
  char path[] = "/tmp/tycho_train_XXXXXX";
  int file = mkstemp(path), named = 0;
  ty_bag *bag = NULL, *loaded = NULL;
  CHECK(file >= 0, "no temporary file");
  close(file);
  RUN(ty_bag_new(&bag));
  put_array(bag, "arg:fc_weight", 2, 2, 2, weight);
  put_array(bag, "arg:fc_bias", 1, 2, 1, bias);
  RUN(ty_params_save(path, bag, 1));
  RUN(ty_params_load(path, &loaded, &named));
  CHECK(named == 1, "names are lost");
  ty_bag_free(bag);
  unlink(path);
  return loaded;
}

static ty_exec *bind_graph(ty_graph *g)
{
  const ty_entry *head = NULL;
  int nhead = 0;
  ty_exec *e = NULL;
  RUN(ty_graph_heads(g, &head, &nhead));
  ty_want want[] = {
    { .name = "data",
        .desc = { .dtype = TY_F32, .ndim = 2, .dim = { POINTS, 2 } },
        .req = TY_NULL },
    { .name = "label", .desc = { .dtype = TY_F32, .ndim = 1, .dim = { POINTS } }, .req = TY_NULL },
    { .name = "fc_weight", .desc = { .dtype = TY_NODTYPE }, .req = TY_WRITE },
    { .name = "fc_bias", .desc = { .dtype = TY_NODTYPE }, .req = TY_WRITE },
  };
  for (int i = 0; i < 4; i++) want[i].device = want[i].grad_device = -1;
  ty_simple_spec spec = {
    .head = head, .nhead = nhead, .want = want, .nwant = 4, .device = TY_CPU, .req = TY_WRITE
  };
  RUN(ty_exec_simple_bind(g, &spec, &e));
  return e;
}

static void fill_arguments(ty_exec *e, ty_bag *weights)
{
  static const char *const names[] = { "fc_weight", "fc_bias" };
  ty_tensor *to = NULL, *from = NULL;
  RUN(ty_exec_arg(e, "data", &to));
  RUN(ty_tensor_write(to, points, sizeof points));
  RUN(ty_exec_arg(e, "label", &to));
  RUN(ty_tensor_write(to, labels, sizeof labels));
  for (int i = 0; i < 2; i++) {
    char key[32];
    snprintf(key, sizeof key, "arg:%s", names[i]);
    RUN(ty_exec_arg(e, names[i], &to));
    RUN(ty_bag_get(weights, key, &from));
    RUN(ty_tensor_copy(to, from));
  }
}

/* Returns the mean loss of the last forward; *right: how many points are on the right side. */
static double compute_score(ty_exec *e, int *right)
{
  float p[POINTS][2];
  ty_tensor *out = NULL;
  double loss = 0;
  RUN(ty_exec_output(e, 0, &out));
  RUN(ty_tensor_read(out, p, sizeof p));
  *right = 0;
  for (int i = 0; i < POINTS; i++) {
    int label = labels[i] > 0.5f;
    loss -= log((double)p[i][label]) / POINTS;
    *right += p[i][label] > 0.5f;
  }
  return loss;
}

static void update_weight(ty_exec *e, const char *name)
{
  ty_attr attr[] = { { "lr", "0.5" }, { "wd", "0" }, { "rescale_grad", "0.015625" } };
  ty_tensor *in[2] = { NULL, NULL };
  RUN(ty_exec_arg(e, name, &in[0]));
  RUN(ty_exec_grad(e, name, &in[1]));
  ty_tensor *out[1] = { in[0] };
  RUN(ty_call("sgd_update", attr, 3, in, 2, out, 1));
}

static void train_network(ty_exec *e)
{
  int right = 0;
  double first = 0;
  for (int step = 0; step < STEPS && !check_failed; step++) {
    RUN(ty_exec_forward(e, 1));
    if (step == 0) first = compute_score(e, &right);
    RUN(ty_exec_backward(e, NULL, 0, 1));
    update_weight(e, "fc_weight");
    update_weight(e, "fc_bias");
  }
  RUN(ty_exec_forward(e, 0));
  double last = compute_score(e, &right);
  CHECK(last < 0.7 * first, "loss %g at first, %g at last", first, last);
  CHECK(right > POINTS * 9 / 10, "%d of %d right", right, POINTS);
}

int main(void)
{
  make_points();
  ty_graph *g = NULL;
  RUN(ty_graph_parse(graph_text, &g));
  ty_bag *weights = stored_weights();
  ty_exec *e = g ? bind_graph(g) : NULL;
  if (e) {
    fill_arguments(e, weights);
    train_network(e);
  }
  ty_exec_free(e);
  ty_graph_free(g);
  ty_bag_free(weights);
  CHECK(ty_live("tensor") == 0 && ty_live("graph") == 0 && ty_live("exec") == 0,
      "live: %d tensors, %d graphs, %d executors", (int)ty_live("tensor"), (int)ty_live("graph"),
      (int)ty_live("exec"));
  return check_end();
}
