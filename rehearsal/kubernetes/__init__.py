"""The Kubernetes rehearsal: an EKS stack's objects and jobs on a real API server, with nodes as HyperPod brings them.

``binaries`` finds or builds the programs; ``network``, ``certificates``, ``processes`` and ``control_plane`` run them.
``objects`` takes from a deployment's state what ``deploy`` and ``charts`` bring to the server; ``nodes`` are what
HyperPod would join. kwok plays kubelets, except for pods that really run: ``pods``, ``volumes`` and ``container`` play
it for those. ``placement``, ``workloads``, ``training`` and ``access`` are the checks, ``run`` and ``cli`` put it all
together.
"""
