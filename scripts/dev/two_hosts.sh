#!/bin/bash
# Two hosts on one machine: network namespaces, each with a host name of its own, that a wire of a
# given rate joins. Runs a program as ranks on both, two on each here; as root, with iproute2, MPI.
#
#   scripts/dev/two_hosts.sh 1gbit 2 build/tycho scripts/multi_host.lua --model lenet
if [ $# -lt 3 ]; then
  sed -n '2,5s/^# \{0,1\}//p' "$0"
  exit 2
fi
rate=$1 each=$2
shift 2
case $rate in
  *gbit) burst=256kb ;; # less than some milliseconds' worth would slow the wire down
  *) burst=64kb ;;
esac
# hosts have cores of their own: each gets half of this machine's, where there are two and all are ours
half=$(($(nproc) / 2)) on_one='' on_two=''
if [ $half -gt 0 ] && [ "$(nproc)" = "$(getconf _NPROCESSORS_ONLN)" ]; then
  on_one="taskset -c 0-$((half - 1))" on_two="taskset -c $half-$(($(nproc) - 1))"
fi
one=tycho_one_$$ two=tycho_two_$$
agent=$(mktemp)

cleanup() {
  ip netns del $one
  ip netns del $two
  rm -f "$agent"
} 2> /dev/null
trap cleanup EXIT

# host NAMESPACE DEVICE ADDRESS: the namespace's end of the wire
host() {
  ip -n "$1" link set lo up && ip -n "$1" addr add "$3/24" dev "$2" &&
    ip -n "$1" link set "$2" up &&
    tc -n "$1" qdisc add dev "$2" root tbf rate "$rate" burst $burst latency 100ms
}

set -e
ip netns add $one
ip netns add $two
ip link add ty1_$$ netns $one type veth peer name ty2_$$ netns $two
host $one ty1_$$ 10.77.0.1
host $two ty2_$$ 10.77.0.2

# what mpirun calls in the place of ssh: agent HOST COMMAND
cat > "$agent" <<END
#!/bin/sh
shift
exec $on_two ip netns exec $two unshare --uts sh -c 'hostname two; exec sh -c "\$*"' sh "\$@"
END
chmod +x "$agent"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
$on_one ip netns exec $one unshare --uts sh -c 'hostname one; exec "$@"' sh mpirun --oversubscribe \
  --bind-to none --host "10.77.0.1:$each,10.77.0.2:$each" -n $((2 * each)) \
  --mca plm_rsh_agent "$agent" \
  --mca oob_tcp_if_include 10.77.0.0/24 --mca btl_tcp_if_include 10.77.0.0/24 --mca pml ob1 \
  --mca btl self,vader,tcp $(env | sed -n 's/^\(TYCHO_[A-Z_]*\)=.*/-x \1/p') "$@"
