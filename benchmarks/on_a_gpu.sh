#!/bin/sh
# What a machine with a GPU is asked for, the most wanted first; about 12 minutes on an H100 with 16 cores.
#
#   sh benchmarks/on_a_gpu.sh [FOLDER]     from the root of a checkout; FOLDER is build/gpu by default
#
# Started again it goes on: a part that has ended is not run again, and a part that was killed keeps
# its rows and the checkpoints of its runs. LIMIT=SECONDS ends it (660 by default), and what is there
# then is published all the same: rows and records go into the checkout, their pages are made anew.
# MINI_IMAGENET=FOLDER has the images of T7, which is left out without it. To try it on a processor:
#
#   DEVICE=cpu SMALL=yes sh benchmarks/on_a_gpu.sh /tmp/try
#
# SMALL takes few steps, two methods of the digests and the first two tasks with few examples; what
# it finds stays in FOLDER.
set -u
folder=${1:-build/gpu}; python=${PYTHON:-python}; device=${DEVICE:-gpu}; limit=${LIMIT:-660}
workers=${WORKERS:-3}
mkdir -p "$folder/done" "$folder/log"
ends=$(($(date +%s) + limit))
export PYTHONUNBUFFERED=1

# part NAME COMMAND...: runs the command unless it has ended well before, within the time that is left.
part() {
  name=$1; shift
  [ -e "$folder/done/$name" ] && { echo "$name: done before"; return 0; }
  left=$((ends - $(date +%s)))
  [ "$left" -gt 5 ] || { echo "$name: no time is left"; return 0; }
  echo "$name: $* ($left s are left)"
  began=$(date +%s)
  # SIGTERM lets a run write its checkpoint.
  timeout -k 10 "$left" "$@" >"$folder/log/$name" 2>&1; code=$?
  echo "$name: exit code $code after $(($(date +%s) - began)) s; the end of $folder/log/$name:"
  tail -n 4 "$folder/log/$name"
  [ "$code" -eq 0 ] && : >"$folder/done/$name"
  return 0
}

# steps NETWORK METHODS [FLAGS...]: a process for each method, of which one measures at a time.
steps() {
  network=$1; methods=$2; shift 2
  for method in $methods; do
    part "steps_$network-$method-$*" "$python" -m benchmarks.gpu "--networks=$network" \
      "--methods=$method" --precisions=float32 --rounds=3 "--device=$device" \
      "--output=$folder/gpu.jsonl" "--turns=$folder/turns" "$@" &
  done
}

# digests NAME METHODS [FLAGS...]: weights after 200 steps in float64, beside those of a processor.
digests() {
  name=$1; methods=$2; shift 2
  part "digests_$name" "$python" -m benchmarks.digests --float64 "--device=$device" \
    "--methods=$methods" "$@"
}

# cells NAME TABLE METHODS FLAGS...: one seed of the cells of one of the paper's tables.
cells() {
  name=$1; table=$2; methods=$3; shift 3
  if [ -n "${SMALL-}" ]; then
    part "$name" "$python" run.py "--method=$methods" --dataset=split_cifar100 --network=resnet18_reduced \
      --max_tasks=2 --examples_per_task=40 --memory_per_class=1 --diagnostics=off \
      "--output_dir=$folder/runs/$name" "--device=$device" --workers=1
  else
    part "$name" "$python" run.py parity "--table=$table" "--method=$methods" --run_missing --seeds=0 \
      --diagnostics=off "--output_dir=$folder/runs/$name" "--device=$device" --workers="$workers" "$@"
  fi
}

# Compiling a chunk keeps a core busy for a minute, and the card idle: processes compile side by side.
if [ -n "${SMALL-}" ]; then
  steps dense "er_ring nccl_ring" --batches=10 --steps=5
  wait
  digests plain er_ring,nccl_ring
  digests xla er_ring,nccl_ring --xla
else
  steps dense "er_ring nccl_ring agem derpp" --batches=10
  steps dense "er_ring nccl_ring" --batches=128
  steps resnet20 "er_ring nccl_ring" --batches=10 --steps=20
  steps resnet64 "er_ring nccl_ring" --batches=10 --steps=20
  wait
  # What follows measures no time.
  digests xla er_ring,nccl_ring,nccl_reservoir,derpp,agem,er_ace,ewc,mega1 --xla &
  digests plain "" &
fi
part readme "$python" run.py "--device=$device" "--output_dir=$folder/readme"
{
  cells T12 T12 nccl_reservoir,nccl_ring,er_reservoir,iid_online,finetune
  cells T2 T13 nccl_reservoir,agem,mir
} &
cells T3 T3 nccl_ring --dataset=split_cifar100
cells T8 T8 nccl_reservoir,er_reservoir,agem,finetune,ewc
if [ -n "${MINI_IMAGENET-}" ]; then
  cells T7 T7 nccl_ring,nccl_reservoir,er_ring,er_reservoir "--manual_dir=$MINI_IMAGENET"
else
  echo "T7: left out, because MINI_IMAGENET names no folder"
fi
wait

if [ -n "${SMALL-}" ]; then
  "$python" -m docs.make.speed "$folder/gpu.jsonl" --check
  exit 0
fi
[ -e "$folder/gpu.jsonl" ] && "$python" -m docs.make.speed "$folder/gpu.jsonl"
[ -e "$folder/runs" ] && "$python" run.py publish "--output_dir=$folder/runs" && "$python" -m docs.make.results
exit 0
