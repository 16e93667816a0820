/* Not 0: some goroutine is asked to give way. For gs_preempt_check. */
extern const volatile uint32_t gs_preempt_word;

/**
 * Gives way if the goroutine is asked to: one load and a branch, for the back-edges
 * of loops that call nothing else. Goroutines and plain threads.
 */
static inline void gs_preempt_check(void)
{
    if (gs_preempt_word != 0)
        gs_preempt_now();
}

