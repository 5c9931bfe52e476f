"""Train nanoGPT's own network on random characters, as its train.py does with the settings for a laptop's CPU.

    python nanogpt_torch.py FOLDER BATCH_SIZE THREADS STEPS

FOLDER has model.py of https://github.com/karpathy/nanoGPT. Trains STEPS steps for each line on standard input, and
prints their median time as JSON.
"""

import json
import statistics
import sys
import time

import torch

sys.path.insert(0, sys.argv[1])
from model import GPT, GPTConfig

BLOCK_SIZE, CHARACTERS = 64, 65


def main():
    batch_size, threads, steps = map(int, sys.argv[2:])
    torch.set_num_threads(threads)
    said, sys.stdout = sys.stdout, sys.stderr  # model.py prints
    config = GPTConfig(BLOCK_SIZE, CHARACTERS, n_layer=4, n_head=4, n_embd=128, dropout=0.0, bias=False)
    net = GPT(config)
    optimizer = net.configure_optimizers(0.1, 1e-3, (0.9, 0.99), "cpu")
    shape = (batch_size, BLOCK_SIZE)
    data = [(torch.randint(CHARACTERS, shape), torch.randint(CHARACTERS, shape)) for _ in range(steps)]
    for _ in sys.stdin:
        times = []
        for inputs, targets in data:
            start = time.perf_counter()
            _, loss = net(inputs, targets)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            times.append(time.perf_counter() - start)
        answer = {"median_step_seconds": statistics.median(times), "loss": loss.item()}
        print(json.dumps(answer), file=said, flush=True)


if __name__ == "__main__":
    main()
