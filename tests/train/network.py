"""Simulates two machines by network namespaces of this one. The link between them can be cut, slow, late or lossy.

A namespace exists as long as the process that holds it. This process dies with the test, so nothing is left. Needs root (or
CAP_NET_ADMIN and CAP_SYS_ADMIN), iproute2, veth and, for a lossy link, TUN. Unavailable says which of them is missing.
"""

import collections
import fcntl
import os
import random
import select
import socket
import struct
import subprocess
import threading
import time

from fixture import LIBC, die_with_the_test

INTERFACE = "link0"
ADDRESSES = ("10.111.0.1", "10.111.0.2")
PORT = 29511  # of the ranks' meeting point; nothing else listens in the new namespaces
CLONE_NEWNET = 0x40000000
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000


class Unavailable(Exception):
    """This machine does not permit what the test needs."""


def run(*command, **options):
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=30, **options)
    except (OSError, subprocess.SubprocessError) as error:
        said = (getattr(error, "stderr", None) or b"").decode().strip()
        raise Unavailable(f"{' '.join(command)}: {said or error}") from None


class Node:
    def __init__(self, address):
        def leave():
            die_with_the_test()
            if LIBC.unshare(CLONE_NEWNET) != 0:
                raise PermissionError("unshare")

        self.address = address
        try:
            self.holder = subprocess.Popen(["sleep", "infinity"], preexec_fn=leave)
        except (OSError, subprocess.SubprocessError):
            raise Unavailable("no new network namespace: want root, or CAP_SYS_ADMIN") from None
        self.ip("link", "set", "lo", "up")

    def enter(self):
        """Moves the calling thread into this node: its new sockets, and those of processes that it starts, are the node's."""
        with open(f"/proc/{self.holder.pid}/ns/net") as namespace:
            if LIBC.setns(namespace.fileno(), CLONE_NEWNET) != 0:
                raise PermissionError("setns")

    def enter_process(self):
        die_with_the_test()
        self.enter()

    def ip(self, *args):
        run("ip", *args, preexec_fn=self.enter_process)

    def join(self):
        """Gives this node's end of the link its address and brings it up. REQUIRES: the end exists."""
        self.ip("address", "add", f"{self.address}/24", "dev", INTERFACE)
        self.ip("link", "set", INTERFACE, "up")

    def cut(self):
        self.ip("link", "set", INTERFACE, "down")

    def mend(self):
        self.ip("link", "set", INTERFACE, "up")

    def limit(self, mbit_per_s):
        """Limits the rate of outgoing data; 0 removes the limit."""
        tc = ("tc", "qdisc", "replace" if mbit_per_s else "del", "dev", INTERFACE, "root")
        shape = ("tbf", "rate", f"{mbit_per_s}mbit", "burst", "64kb", "latency", "200ms") if mbit_per_s else ()
        run(*tc, *shape, preexec_fn=self.enter_process)

    def socket(self):
        """Returns a socket of this node, which every thread can use. Only the thread that creates it must be in the node."""
        made = []

        def make():
            self.enter()
            made.append(socket.socket())

        thread = threading.Thread(target=make)
        thread.start()
        thread.join()
        return made[0]

    def close(self):
        self.holder.kill()
        self.holder.wait()


def two_nodes():
    nodes = []
    try:
        nodes += [Node(address) for address in ADDRESSES]
    except Unavailable:
        for node in nodes:
            node.close()
        raise
    return nodes


def connect(nodes):
    """Connects the two nodes by a veth pair."""
    ends = [("netns", str(node.holder.pid)) for node in nodes]
    run("ip", "link", "add", INTERFACE, *ends[0], "type", "veth", "peer", "name", INTERFACE, *ends[1])
    for node in nodes:
        node.join()


class LossyLink(threading.Thread):
    """Carries packets between the nodes, delays each by `delay_s` and drops the share `loss`. Runs in user space, because
    not every kernel has netem. A loss of 1 in 50 and a delay of 20 ms are far below what it can handle."""

    def __init__(self, nodes, delay_s, loss, seed=1):
        super().__init__(daemon=True)
        self.delay_s, self.loss, self.random = delay_s, loss, random.Random(seed)
        self.carried = self.dropped = 0
        self.over = threading.Event()
        self.ends = [self.open_end(node, number) for number, node in enumerate(nodes)]
        self.start()

    @staticmethod
    def open_end(node, number):
        try:
            end = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
            name = f"copus{os.getpid() % 100000}.{number}"
            fcntl.ioctl(end, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
        except OSError as error:
            raise Unavailable(f"/dev/net/tun: {error}") from None
        run("ip", "link", "set", name, "netns", str(node.holder.pid))
        node.ip("link", "set", name, "name", INTERFACE)
        node.join()
        return end

    def run(self):
        other = {self.ends[0]: self.ends[1], self.ends[1]: self.ends[0]}
        under_way = collections.deque()  # (due, to, packet); in order, because all have the same delay
        while not self.over.is_set():
            wait = under_way[0][0] - time.monotonic() if under_way else 0.1
            ready, _, _ = select.select(self.ends, [], [], max(0, min(wait, 0.1)))
            for end in ready:
                packet = os.read(end, 65536)
                if self.random.random() < self.loss:
                    self.dropped += 1
                else:
                    self.carried += 1
                    under_way.append((time.monotonic() + self.delay_s, other[end], packet))
            while under_way and under_way[0][0] <= time.monotonic():
                _, to, packet = under_way.popleft()
                os.write(to, packet)

    def close(self):
        self.over.set()
        self.join()
        for end in self.ends:
            os.close(end)


def measure_gbit_per_s(nodes, megabytes):
    """Returns the rate of one connection from the first node to the second, in one direction."""
    listener, client = nodes[1].socket(), nodes[0].socket()
    with listener, client:
        listener.settimeout(60)
        client.settimeout(60)
        listener.bind((nodes[1].address, 0))
        listener.listen()
        client.connect(listener.getsockname())
        server, _ = listener.accept()
        server.settimeout(60)
        total = int(megabytes * 1e6)
        begin = time.monotonic()
        sender = threading.Thread(target=client.sendall, args=(bytes(total),))
        sender.start()
        got = 0
        with server:
            while got < total:
                got += len(server.recv(1 << 20))
        seconds = time.monotonic() - begin
        sender.join()
    return 8 * total / seconds / 1e9
