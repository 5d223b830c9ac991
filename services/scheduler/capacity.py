"""Which node gets the next replica: room, weights, spread over failure domains, and the reason when there is none."""

from collections import Counter

from services.scheduler.fleet import Assignment, Deployment, Fleet, Node


class Capacity:
    """Room on the nodes of one snapshot while a plan is made. Assignments that drain still hold their room."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._held: dict[str, list[Assignment]] = {node_id: [] for node_id in fleet.nodes}
        for assignment in fleet.assignments:
            self.hold(assignment)

    def hold(self, assignment: Assignment) -> None:
        """The assignment takes room on its node; without effect when the node is not registered."""
        if assignment.node_id in self._held:
            self._held[assignment.node_id].append(assignment)

    def release(self, assignment: Assignment) -> None:
        """The assignment is removed and its room is free."""
        if assignment in self._held.get(assignment.node_id, ()):
            self._held[assignment.node_id].remove(assignment)

    def is_eligible(self, node: Node, deployment: Deployment) -> bool:
        """True when the node could run the deployment if it had room."""
        return node.node_id not in self._fleet.cordoned and node.has_model(deployment.model, deployment.model_version)

    def eligible(self, deployment: Deployment) -> list[Node]:
        """Nodes that could run the deployment if they had room, by name."""
        return [node for _, node in sorted(self._fleet.nodes.items()) if self.is_eligible(node, deployment)]

    def choose(self, deployment: Deployment) -> Node | None:
        """The node for one more replica: fewest of the model in the failure domain, then on the node, then emptiest, then by name."""
        domains = self._per_domain(deployment.model)
        candidates = [node for node in self.eligible(deployment) if len(self._held[node.node_id]) < node.max_num_replicas]
        return min(
            candidates,
            key=lambda node: (domains[node.domain], self._on_node(node, deployment.model), len(self._held[node.node_id]), node.node_id),
            default=None,
        )

    def devices_for(self, node: Node) -> tuple[int, ...]:
        """The device that fewest replicas of the node use; empty when the node gives out none."""
        if not node.device_indexes:
            return ()
        used = Counter(index for held in self._held[node.node_id] for index in held.device_indexes)
        return (min(node.device_indexes, key=lambda index: (used[index], index)),)

    def load(self, node: Node) -> str:
        """How full the node is, in words."""
        return f"{len(self._held[node.node_id])} of {node.max_num_replicas} replicas"

    def refusal(self, deployment: Deployment) -> str:
        """Why `choose` finds no node, as one clause."""
        wanted = deployment.model + (f"@{deployment.model_version}" if deployment.model_version else "")
        if not self._fleet.nodes:
            return "no node is registered"
        having = [node for node in self._fleet.nodes.values() if node.has_model(deployment.model, deployment.model_version)]
        if not having:
            return f"no node has {wanted} in its model store; run: inferway model import {deployment.model}"
        full = [f"{node.node_id} is full ({self.load(node)})" for node in self.eligible(deployment)]
        drained = [f"{node.node_id} is drained" for node in having if node.node_id in self._fleet.cordoned]
        return ", ".join(sorted([*full, *drained]))

    def _per_domain(self, model: str) -> Counter[str]:
        domains: Counter[str] = Counter()
        for node in self._fleet.nodes.values():
            domains[node.domain] += self._on_node(node, model)
        return domains

    def _on_node(self, node: Node, model: str) -> int:
        return sum(held.model == model and not held.draining for held in self._held[node.node_id])
