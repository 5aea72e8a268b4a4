/*
 * A plug-in of Slurm's (spank(8)) that does what TaskProlog does, before Pyxis enters the container.
 *
 * Slurm runs TaskProlog after its plug-ins, so in the container, where it is not: the task then ends (NVIDIA/pyxis,
 * issue 163). Until the summer of 2025 slurmstepd and its libraries had to be there, too (SchedMD/slurm, CHANGELOG).
 *
 * Its argument in plugstack.conf is the command. Lines of its output are those of TaskProlog (slurm.conf(5)):
 * "export NAME=VALUE" and "unset NAME".
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <slurm/spank.h>

SPANK_PLUGIN(hyperpod_task_environment, 1);

static pid_t start(char *command, char **environment, int *output)
{
	int ends[2];
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return -1;
	pid = fork();
	if (pid == 0) {
		char *arguments[] = {command, NULL};
		int nothing = open("/dev/null", O_RDONLY);

		if (nothing >= 0 && dup2(nothing, STDIN_FILENO) >= 0 && dup2(ends[1], STDOUT_FILENO) >= 0)
			execve(command, arguments, environment);
		_exit(127);
	}
	close(ends[1]);
	*output = ends[0];
	if (pid < 0)
		close(ends[0]);
	return pid;
}

static void apply(spank_t spank, char *line)
{
	line[strcspn(line, "\n")] = '\0';
	if (strncmp(line, "unset ", 6) == 0) {
		spank_unsetenv(spank, line + 6);
	} else if (strncmp(line, "export ", 7) == 0) {
		char *name = line + 7, *equals = strchr(name, '=');

		if (equals) {
			*equals = '\0';
			spank_setenv(spank, name, equals + 1, 1);
		}
	}
}

int slurm_spank_task_init(spank_t spank, int argc, char **argv)
{
	char **environment = NULL, *line = NULL;
	size_t size = 0;
	int output = -1, status = 0;
	FILE *lines;
	pid_t pid;

	if (argc < 1 || spank_get_item(spank, S_JOB_ENV, &environment) != ESPANK_SUCCESS)
		return 0;
	pid = start(argv[0], environment, &output);
	lines = pid < 0 ? NULL : fdopen(output, "r");
	if (!lines) {
		slurm_error("%s cannot be started: %m", argv[0]);
		return -1;
	}
	while (getline(&line, &size, lines) >= 0)
		apply(spank, line);
	free(line);
	fclose(lines);
	if (waitpid(pid, &status, 0) == pid && status != 0) {
		slurm_error("%s failed", argv[0]);
		return -1;
	}
	return 0;
}
