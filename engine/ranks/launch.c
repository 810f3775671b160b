// Reads the environment that launchers give to the processes that they start. Sources: mpirun(1) of Open
// MPI 4.1, "Environment variables"; srun(1) of Slurm 22.05, "Output environment variables"; the PMIx
// standard, 4.1; for mpirun's patience its parameter odls_base_sigkill_timeout (`ompi_info --all`), of which
// the default is 1.
#include "processes.h"

#include <stdlib.h>

static bool number(const char *name, int *value) {
    const char *text = getenv(name);
    if (!text || !*text)
        return false;
    *value = atoi(text);
    return true;
}

bool processes_launched(struct launch *l) {
    *l = (struct launch){0};
    // A batch script has SLURM_PROCID and SLURM_NTASKS, too; only a step has the number of its tasks.
    if (number("OMPI_COMM_WORLD_SIZE", &l->num_processes) && number("OMPI_COMM_WORLD_RANK", &l->process))
        l->launcher = "mpirun";
    else if (number("SLURM_STEP_NUM_TASKS", &l->num_processes) && number("SLURM_PROCID", &l->process))
        l->launcher = "srun";
    else if (number("PMIX_RANK", &l->process) && getenv("PMIX_NAMESPACE"))
        l->launcher = "PMIx";
    if (l->launcher && (l->num_processes > 1 || l->num_processes == 0))
        return true;
    *l = (struct launch){0};
    return false;
}

double launch_patience(void) {
    int seconds;
    if (!getenv("OMPI_COMM_WORLD_SIZE"))
        return -1;
    return number("OMPI_MCA_odls_base_sigkill_timeout", &seconds) && seconds >= 0 ? seconds : 1;
}
