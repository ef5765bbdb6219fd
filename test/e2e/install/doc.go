/*
Package install shows that what people install is what the server needs: every overlay of manifests/, and the Helm chart
in every mode.

  - render_test.go   renders them, as kubectl kustomize and helm template do, and holds the chart against the overlays
  - apply_test.go    has the real API server take them, by server-side dry run
  - program_test.go  makes of a pod's spec a process: its flags, files, environment and identity, of which no more is
    changed than addresses and paths
  - run_test.go      runs each that is unlike the others, has it do its main job, and looks in the API server's audit
    log for what it was denied

The kinds of cert-manager and prometheus-operator are defined with schemas that take everything: that the objects are
right is shown in test/monitoring.
*/
package install
