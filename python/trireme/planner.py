# SPDX-License-Identifier: Apache-2.0
"""Plans of a model for many ranks: predicted, searched and explained without training.

    plan = Planner('resnet50', data, ranks=8)           # model={'split': {'mesh': '2x4'}, 'memory_bytes': ...}: of the model
    plan.info['step_seconds'], plan.report()['meshes']
    plan                       # in a notebook: the picture of the operators
    plan.save('plan.txt')      # Model(..., split={'kind': 'planned', 'plan': open('plan.txt').read()})
"""
import json
from ctypes import byref

from . import _c
from ._call import Owner, stoppable, take, text_of
from ._convert import as_dict, options, takes, text
from ._methods import PlannerMethods
from .model import Model


class Planner(PlannerMethods, Owner):
    """The chosen plan for a model and its alternatives.

    model: further arguments of Model: {'optimizer': ..., 'memory_bytes': ..., 'split': {'mesh': ..., 'search': ...}}
    more: members of trm_planner_options: ranks, hosts, links, measure_seconds, measure, own_devices, ...
    """

    free = 'trm_planner_destroy'

    @takes(_c.trm_planner_options)
    def __init__(self, network, data, model=None, **more):
        self.keep, self.handle = [], None
        # The model's options hold the callbacks; the model itself is small beside the search, and needed by nothing else.
        self.model = Model(network, data, **(model or {}))
        with stoppable() as stop:  # Ctrl-C ends the search
            given = options(_c.trm_planner_options, dict(more, stop=stop), self.keep)
            self.handle = take(_c.trm_planner_create, byref(self.model.options_c), byref(given), run=self.model._call)

    def __str__(self):
        return self.report(json_form=False)

    _repr_svg_ = PlannerMethods.svg

    def plans(self):
        """The chosen plan, then other good plans and the baselines: dictionaries with the text of each plan."""
        found, about = [], _c.trm_planner_candidate()
        for plan in iter(lambda: _c.trm_planner_plan(self.handle, len(found), byref(about)), None):
            found.append(dict(as_dict(about), plan=text_of(plan)))
        return found

    @takes(_c.trm_simulation_options)
    def simulate(self, **more):
        """Simulates the chosen plan; more: largest, straggler, trace."""
        given = options(_c.trm_simulation_options, dict(more, json=True), self.keep)
        return json.loads(text_of(take(_c.trm_planner_simulate, self.handle, byref(given))))


def read_plan(path):
    """The content of a plan file as a dictionary; its lines under "text"."""
    out = _c.trm_plan_info()
    lines = text_of(take(_c.trm_plan_read, text(path), byref(out)))
    return dict(as_dict(out), text=lines)
