#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Guide 002's launch script (step 8), with its blanks corrected: run.sh DATA_PATH, beside rank_table_8pcs.json. RANK_SIZE (8) may be set.
export DATA_PATH=${DATA_PATH:-$1}
export RANK_TABLE_FILE=$(pwd)/rank_table_8pcs.json
export RANK_SIZE=${RANK_SIZE:-8}

for((i=1;i<${RANK_SIZE};i++))
do
    rm -rf device$i
    mkdir device$i
    cp ./resnet50_distributed_training.py ./resnet.py ./device$i
    cd ./device$i
    export DEVICE_ID=$i
    export RANK_ID=$i
    echo "start training for device $i"
    env > env$i.log
    pytest -s -v ./resnet50_distributed_training.py > train.log$i 2>&1 &
    cd ../
done
rm -rf device0
mkdir device0
cp ./resnet50_distributed_training.py ./resnet.py ./device0
cd ./device0
export DEVICE_ID=0
export RANK_ID=0
echo "start training for device 0"
env > env0.log
pytest -s -v ./resnet50_distributed_training.py > train.log0 2>&1
if [ $? -eq 0 ];then
    echo "training success"
else
    echo "training failed"
    exit 2
fi
cd ../
