package decide

// UncountableError says that a pod is well-formed but that what it requests cannot be counted.
type UncountableError struct {
	Cause error
}

// Error names the field that is wrong.
func (e *UncountableError) Error() string { return "the pod cannot be scheduled: " + e.Cause.Error() }

// Unwrap returns the cause.
func (e *UncountableError) Unwrap() error { return e.Cause }
