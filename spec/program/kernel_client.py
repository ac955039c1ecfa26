# Runs cells in the Jupyter kernel ILua with a program as its interpreter; prints what they answer
# as JSON. For spec/program/notebook_spec.lua.
#   python3 kernel_client.py PROGRAM < QUESTIONS      a JSON list of {"run": CODE}, {"complete": TEXT}
import json
import os
import queue
import subprocess
import sys
import tempfile

runtime = tempfile.TemporaryDirectory()
os.environ["JUPYTER_RUNTIME_DIR"] = runtime.name         # where the kernel's sockets are noted

from jupyter_client.manager import KernelManager


def reply(client, asked, timeout):
    while True:
        message = client.get_shell_msg(timeout=timeout)
        if message["parent_header"].get("msg_id") == asked:
            return message


def run(client, code):
    answer = {"text": "", "result": None, "error": None}
    asked = client.execute(code)
    while True:
        message = client.get_iopub_msg(timeout=60)
        if message["parent_header"].get("msg_id") != asked:
            continue
        content = message["content"]
        kind = message["msg_type"]
        if kind == "stream":
            answer["text"] += content["text"]
        elif kind == "execute_result":
            answer["result"] = content["data"]["text/plain"]
        elif kind == "error":
            answer["error"] = "\n".join(content["traceback"])
        elif kind == "status" and content["execution_state"] == "idle":
            reply(client, asked, 60)
            return answer


def complete(client, text):
    return reply(client, client.complete(text), 60)["content"]["matches"]


# Starts a kernel. ILua says that it is ready before its interpreter is, answers nothing until then,
# and now and then never: then another one is started.
def start():
    for _ in range(4):
        manager = KernelManager()
        manager.kernel_spec.argv = [sys.executable, "-m", "ilua.app", "-c", "{connection_file}",
                                    "-i", sys.argv[1]]
        manager.start_kernel(stderr=subprocess.DEVNULL)
        client = manager.client()
        client.start_channels()
        client.wait_for_ready(timeout=60)
        for _ in range(8):
            try:
                reply(client, client.execute("nil"), 2)
                return manager, client
            except queue.Empty:
                pass
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    sys.exit("the kernel answers nothing")


manager, client = start()
try:
    print(json.dumps([run(client, q["run"]) if "run" in q else complete(client, q["complete"])
                      for q in json.load(sys.stdin)]))
finally:
    client.stop_channels()
    manager.shutdown_kernel(now=True)
