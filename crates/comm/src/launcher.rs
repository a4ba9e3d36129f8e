//! What a launcher (mpirun, srun) says about the job that this process belongs to.

/// This process among those of its job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LaunchedProcess {
    /// Its number.
    pub rank: usize,
    /// How many there are.
    pub size: usize,
}

/// The variables that launchers set: rank and size. Slurm's are those of a step, which a batch script is not.
const VARIABLES: [(&str, &str); 3] = [
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
];

/// How many processes of the job run on this machine, if the launcher says so.
pub fn processes_beside() -> Option<usize> {
    let variables = ["OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "SLURM_NTASKS_PER_NODE"];
    variables.iter().find_map(|name| std::env::var(name).ok()?.trim().parse().ok())
}

/// The number of this process among those of the job on this machine, if the launcher says so.
pub fn local_rank() -> Option<usize> {
    let variables = ["OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"];
    variables.iter().find_map(|name| std::env::var(name).ok()?.trim().parse().ok())
}

/// This process among those of its job, if a launcher started more than one.
pub fn launched() -> Option<LaunchedProcess> {
    launched_by(&|name| std::env::var(name).ok())
}

fn launched_by(variable: &dyn Fn(&str) -> Option<String>) -> Option<LaunchedProcess> {
    let number = |name: &str| variable(name)?.trim().parse::<usize>().ok();
    let found = VARIABLES.iter().find_map(|(rank, size)| Some((number(rank)?, number(size)?)));
    found.filter(|&(rank, size)| size > 1 && rank < size).map(|(rank, size)| LaunchedProcess { rank, size })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(variables: &[(&str, &str)]) -> Option<LaunchedProcess> {
        launched_by(&|name| variables.iter().find(|v| v.0 == name).map(|v| v.1.to_owned()))
    }

    #[test]
    fn every_launcher_is_understood() {
        let third = Some(LaunchedProcess { rank: 2, size: 4 });
        assert_eq!(with(&[("OMPI_COMM_WORLD_RANK", "2"), ("OMPI_COMM_WORLD_SIZE", "4")]), third);
        assert_eq!(with(&[("PMI_RANK", "2"), ("PMI_SIZE", "4")]), third);
        assert_eq!(with(&[("SLURM_PROCID", "2"), ("SLURM_STEP_NUM_TASKS", "4")]), third);
    }

    #[test]
    fn one_process_is_no_job() {
        assert_eq!(with(&[]), None);
        // A batch script is no step of its job.
        assert_eq!(with(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4")]), None);
        assert_eq!(with(&[("SLURM_PROCID", "0"), ("SLURM_STEP_NUM_TASKS", "1")]), None);
        assert_eq!(with(&[("PMI_RANK", "x"), ("PMI_SIZE", "4")]), None);
        assert_eq!(with(&[("PMI_RANK", "7"), ("PMI_SIZE", "4")]), None);
    }
}
