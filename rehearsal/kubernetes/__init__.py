"""The Kubernetes rehearsal: an EKS stack's objects and jobs on a real API server, with nodes like HyperPod's.

``binaries`` finds or builds the programs; ``network``, ``certificates``, ``processes`` and ``control_plane`` run them.
``declared`` reads the objects from a deployment's state (``objects``), and ``deploy`` and ``charts`` apply them;
``pulumi_engine`` applies them with the real engine and the real providers instead. ``nodes`` creates HyperPod's nodes.
kwok plays the kubelets, except for pods that really run: ``pods``, ``volumes`` and ``container`` do it for those.
``placement``, ``workloads``, ``training`` and ``access`` are the checks. ``run`` and ``rehearse`` put it together.
"""
