"""The node rehearsal: a Slurm stack's nodes as isolated hosts of this machine, with HyperPod's and AWS's parts played.

``sandbox`` and ``network`` make the place, ``image``, ``machine`` and ``hosts`` the hosts in it; ``imds``,
``aws_endpoint`` and ``agent`` are what AWS and HyperPod do to them; ``cluster`` puts them together; ``checks``,
``recovery`` and ``growth`` use, break and change them; ``eks_image`` is what EKS nodes have of their own.
Process 1 is the machine's own systemd, and Slurm is Debian's package of the release that HyperPod ships, or of the next
(``slurm_packages``). ``stubs`` is what runs in place of AWS's commands and of hardware.
"""
