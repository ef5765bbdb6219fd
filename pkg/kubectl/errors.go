package kubectl

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/tools/clientcmd"
)

// Exit codes of the plugin. They are promised in the help of the root command.
const (
	// exitOK: done.
	exitOK = 0
	// exitFailed: it was tried and refused, or something asked for does not exist.
	exitFailed = 1
	// exitUsage: the command line makes no sense; nothing was tried.
	exitUsage = 2
	// exitUnreachable: the GlobalReserve server or the Kubernetes API does not answer.
	exitUnreachable = 3
	// exitNotAvailable: the reservation was created, and --wait ended before it was available.
	exitNotAvailable = 4
)

// codedError is an error with the exit code it is to end the program with.
type codedError struct {
	code int
	err  error
}

func (e *codedError) Error() string { return e.err.Error() }
func (e *codedError) Unwrap() error { return e.err }

func usageErrorf(format string, args ...any) error {
	return &codedError{exitUsage, fmt.Errorf(format, args...)}
}

func unreachablef(format string, args ...any) error {
	return &codedError{exitUnreachable, fmt.Errorf(format, args...)}
}

// exitCode returns the code of an error; errors without one are exitFailed.
func exitCode(err error) int {
	if err == nil {
		return exitOK
	}
	coded := &codedError{code: exitFailed}
	errors.As(err, &coded)
	return coded.code
}

// explainConfigError says what to do about a kubeconfig that cannot be used.
func explainConfigError(err error) error {
	if clientcmd.IsEmptyConfig(err) || errors.Is(err, genericclioptions.ErrEmptyConfig) {
		return usageErrorf("there is no kubeconfig: give --kubeconfig FILE, set KUBECONFIG, or write ~/.kube/config")
	}
	return usageErrorf("the kubeconfig cannot be used: %w", err)
}

// explainAPIError says what to do about an error of the Kubernetes API, where that is known. what
// says what was tried, such as "create reservation \"x\"".
func explainAPIError(what string, err error) error {
	var network *url.Error
	switch {
	case err == nil:
		return nil
	case isMissingDefinition(err):
		return fmt.Errorf("%s: this cluster does not know Reservation objects: "+
			"install their definition with kubectl apply -k manifests/crd, then try again", what)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%s: you may not do that: %w: ask for the right, or use another --context or --user", what, err)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%s: the cluster does not know who you are: %w: renew the credentials of your kubeconfig", what,
			err)
	case errors.As(err, &network):
		if errors.Is(err, context.Canceled) {
			return fmt.Errorf("%s: interrupted", what)
		}
		return unreachablef("%s: the Kubernetes API does not answer: %w: check --kubeconfig and --context", what, err)
	default:
		return fmt.Errorf("%s: %w", what, err)
	}
}

// isMissingDefinition reports whether the API server knows no such resource. It then answers with a bare
// 404, which client-go marks; of an object that is missing it sends a status of its own.
func isMissingDefinition(err error) bool {
	return apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}
