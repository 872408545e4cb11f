# SPDX-License-Identifier: Apache-2.0
"""A second reader of rank tables: docs/reference/rank-table.md.

    read(path) -> (form, rows)     rows: [Row], in the order of ranks
    digest(rows) -> text           as `trireme cluster check` prints it

A fault raises ValueError.
"""
import hashlib
import json
from collections import namedtuple

Row = namedtuple('Row', 'rank server host device address port')


def rows_of_groups(root):
    """Forms with group_list: lab (a device an instance), container (a pod an instance)."""
    group, = root['group_list']
    instances = group['instance_list']
    pods = 'device_count' in group or 'pod_name' in instances[0]
    rows = []
    for instance in instances:
        for device in instance['devices']:
            rank = len(rows) if pods else int(instance['rank_id'])
            rows.append(Row(rank, instance['server_id'], instance['server_id'], int(device['device_id']),
                            device.get('device_ip', ''), 0))
    return 'container' if pods else 'lab', rows


def rows_of_servers(root):
    """Versions 1.0 and 1.2: server_list."""
    return [Row(int(device['rank_id']), server['server_id'], server.get('host_ip') or server['server_id'],
                int(device['device_id']), device.get('device_ip', ''), int(device.get('device_port', 0)))
            for server in root['server_list'] for device in server['device']]


def rows_of_ranks(root):
    """Version 2.0: rank_list; ranks with the same net_instance_id on layer 0 are on one server."""
    rows = []
    for entry in root['rank_list']:
        levels = {int(level['net_layer']): level['net_instance_id'] for level in entry['level_list']}
        server = levels[0] if levels else 'localhost'
        rows.append(Row(int(entry['rank_id']), server, server, int(entry.get('device_id', entry['local_id'])), '',
                        int(entry.get('device_port', 0))))
    return rows


def read(path):
    with open(path, encoding='utf-8') as f:
        root = json.load(f)
    version = root.get('version')
    if version is None:
        form, rows = rows_of_groups(root)
    elif version in ('1.0', '1.2'):
        form, rows = 'version ' + version, rows_of_servers(root)
    elif version == '2.0':
        form, rows = 'version 2.0', rows_of_ranks(root)
    else:
        raise ValueError(f'{path}: version {version}')
    if root.get('status', 'completed') != 'completed':
        raise ValueError(f'{path}: status {root["status"]}')
    rows.sort()
    if [row.rank for row in rows] != list(range(len(rows))):
        raise ValueError(f'{path}: ranks {[row.rank for row in rows]}')
    return form, rows


def digest(rows):
    """SHA-256 of rank, device, port, server, host and address of each rank: equal for equal tables of any form."""
    total = hashlib.sha256()
    for row in rows:
        total.update(f'{row.rank} {row.device} {row.port}\n'.encode())
        for text in (row.server, row.host, row.address):
            total.update(text.encode() + b'\0')
    return total.hexdigest()
