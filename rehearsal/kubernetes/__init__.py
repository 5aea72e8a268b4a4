"""The Kubernetes rehearsal: an EKS stack's objects and jobs on a real API server, with nodes as HyperPod brings them.

``binaries`` finds or builds the programs; ``network``, ``certificates``, ``processes`` and ``control_plane`` run them.
``declared`` takes from a deployment's state (``objects``) what ``deploy`` and ``charts`` bring to the server;
``pulumi_engine`` lets the real engine and the real providers bring it instead. ``nodes`` are what HyperPod would join.
kwok plays kubelets, except for pods that really run: ``pods``, ``volumes`` and ``container`` play it for those.
``placement``, ``workloads``, ``training`` and ``access`` are the checks, ``run`` and ``rehearse`` put it all together.
"""
