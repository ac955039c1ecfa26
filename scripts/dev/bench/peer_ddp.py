"""PyTorch's DDP over gloo beside scripts/multi_host.lua, as a rank that mpirun started: peer_ddp.py lm|resnet50 STEPS PORT.

Rank 0 prints milliseconds per step of all ranks together; the networks, batches and optimizer are those of ranks.lua."""
import os, sys, time, warnings
warnings.filterwarnings("ignore")
import torch
from torch import nn
from torch.nn import functional as F
import torch.distributed as dist

model, steps, port = sys.argv[1], int(sys.argv[2]), sys.argv[3]
del sys.argv[1:]                                          # peer_torch runs what it finds there
rank, size = int(os.environ["OMPI_COMM_WORLD_RANK"]), int(os.environ["OMPI_COMM_WORLD_SIZE"])
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
torch.manual_seed(1 + rank)
HIDDEN, LENGTH, WORDS, BATCH = 200, 20, 2000, 8


class Language(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.rnn, self.pred = nn.Embedding(WORDS, HIDDEN), nn.LSTM(HIDDEN, HIDDEN, 2, batch_first=True), nn.Linear(HIDDEN, WORDS)

    def forward(self, x): return self.pred(self.rnn(self.embed(x))[0]).flatten(0, 1)


if model == "lm":
    x = torch.randint(WORDS, (BATCH, LENGTH))
    y, variants = x.flatten(), [(Language(), x)]
else:
    import peer_torch
    (net, shape, _), (other, _, _) = peer_torch.network(model), peer_torch.network(model)
    x, y = torch.randn(BATCH, *shape), torch.randint(10, (BATCH,))
    variants = [(net, x), peer_torch.nhwc(other, x)]
torch.set_num_threads(1)

dist.init_process_group("gloo", rank=rank, world_size=size)
best = None
for net, x in variants:                                   # the better of plain and channels last counts
    f = nn.parallel.DistributedDataParallel(net.train())
    sgd = torch.optim.SGD(net.parameters(), lr=1e-4, momentum=0.9, fused=True)
    def step():
        sgd.zero_grad(set_to_none=True)
        F.cross_entropy(f(x), y).backward()
        sgd.step()
    for _ in range(2):
        step()
    dist.barrier()
    start = time.perf_counter()
    for _ in range(steps):
        step()
    dist.barrier()
    took = (time.perf_counter() - start) / steps * 1e3
    best = took if best is None else min(best, took)
if rank == 0:
    print("DDP %s, %d ranks, batches of %d: %.3f ms per step" % (model, size, BATCH, best))
dist.destroy_process_group()
