"""The engines that run the program: the embedded one, and Pulumi's with the embedded account as its provider."""
