/*
 * Stands for Pyxis where its source cannot be had: takes its options, and enters namespaces in which the node's /opt is
 * gone but for what the job and Enroot's mounts.d name. The "image" is a name only; its files are those of the node.
 */
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <slurm/spank.h>

SPANK_PLUGIN(pyxis, 1);

static char *image, *folder, *runtime = "/run/pyxis";

static int take_image(int value, const char *given, int remote)
{
	image = strdup(given);
	return 0;
}

static int take_folder(int value, const char *given, int remote)
{
	folder = strdup(given);
	return 0;
}

static int take_mounts(int value, const char *given, int remote)
{
	return 0;
}

static struct spank_option options[] = {
	{"container-image", "IMAGE", "[pyxis] the image", 1, 0, take_image},
	{"container-workdir", "PATH", "[pyxis] working folder", 1, 0, take_folder},
	{"container-mounts", "SRC:DST", "[pyxis] mounts", 1, 0, take_mounts},
	SPANK_OPTIONS_TABLE_END,
};

int slurm_spank_init(spank_t spank, int argc, char **argv)
{
	/* As config.c. */
	for (int at = 0; at < argc; at++)
		if (strncmp(argv[at], "runtime_path=", 13) == 0)
			runtime = strdup(argv[at] + 13);
	for (struct spank_option *one = options; one->name; one++)
		if (spank_option_register(spank, one) != ESPANK_SUCCESS)
			return -1;
	return 0;
}

static const char *enter =
	"cat /etc/enroot/mounts.d/*.fstab > /tmp/fstab.$$\n"
	"mount -t tmpfs none /mnt\n"
	"number=0\n"
	"while read -r source target rest; do\n"
	"  number=$((number + 1)); mkdir /mnt/$number\n"
	"  mount --bind $source /mnt/$number 2>/dev/null || rmdir /mnt/$number\n"
	"done < /tmp/fstab.$$\n"
	"mount -t tmpfs none /opt\n"
	"number=0\n"
	"while read -r source target rest; do\n"
	"  number=$((number + 1)); [ -d /mnt/$number ] || continue\n"
	"  mkdir -p $target; mount --bind /mnt/$number $target\n"
	"done < /tmp/fstab.$$\n"
	"rm /tmp/fstab.$$\n";

static int put(const char *name, const char *text)
{
	int file = open(name, O_WRONLY), good;

	if (file < 0)
		return -1;
	good = write(file, text, strlen(text)) == (ssize_t)strlen(text);
	close(file);
	return good ? 0 : -1;
}

int slurm_spank_task_init(spank_t spank, int argc, char **argv)
{
	char users[32], groups[32];
	int status;
	pid_t pid;

	if (!image)
		return 0;
	/* A process that has changed its user may not write its own maps otherwise. */
	prctl(PR_SET_DUMPABLE, 1);
	snprintf(users, sizeof users, "0 %d 1", (int)getuid());
	snprintf(groups, sizeof groups, "0 %d 1", (int)getgid());
	if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0 || put("/proc/self/setgroups", "deny") < 0 ||
	    put("/proc/self/uid_map", users) < 0 || put("/proc/self/gid_map", groups) < 0)
		return -1;
	pid = fork();
	if (pid == 0) {
		char *path[] = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", NULL};

		execle("/bin/sh", "sh", "-ec", enter, NULL, path);
		_exit(127);
	}
	if (waitpid(pid, &status, 0) != pid || status || (folder && chdir(folder) < 0))
		return -1;
	spank_setenv(spank, "IN_CONTAINER", image, 1);
	spank_setenv(spank, "PYXIS_RUNTIME_PATH", runtime, 1);
	return 0;
}
