"""The node rehearsal: a Slurm stack's nodes as isolated hosts on this machine, with HyperPod and AWS emulated.

``sandbox`` and ``network`` isolate the run; ``image``, ``machine`` and ``hosts`` make the hosts. ``imds``,
``aws_endpoint`` and ``agent`` play AWS and HyperPod. ``cluster`` puts them together; ``checks``, ``recovery`` and
``growth`` use, break and change the cluster. ``eks_image`` has what only EKS nodes have.
Process 1 is the machine's own systemd. Slurm is Debian's package of the release that HyperPod ships, or of the next one
(``slurm_packages``). ``stubs`` has stand-ins for AWS's commands and for hardware.
"""
