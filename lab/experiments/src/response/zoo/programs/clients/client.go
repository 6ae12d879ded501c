// The HTTP client of Go. Usage: client http1|http2 URL PLAN SECONDS
package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

const clockMonotonic = 1

func now() int64 {
	var at syscall.Timespec
	syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&at)), 0)
	return at.Nano()
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	library, url, plan := os.Args[1], os.Args[2], os.Args[3]
	seconds, err := strconv.ParseFloat(os.Args[4], 64)
	check(err)
	text, err := os.ReadFile(plan)
	check(err)
	requests := strings.Split(strings.TrimSpace(string(text)), "\n")
	protocols := new(http.Protocols)
	protocols.SetHTTP1(library == "http1")
	protocols.SetHTTP2(library == "http2")
	protocols.SetUnencryptedHTTP2(library == "http2")
	client := http.Client{Transport: &http.Transport{
		Protocols:       protocols,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}}
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	end := now() + int64(seconds*1e9)
	for at := 0; ; at = (at + 1) % len(requests) {
		var think, service float64
		var answer, body, pieces int
		fmt.Sscan(requests[at], &think, &service, &answer, &body, &pieces)
		time.Sleep(time.Duration(think * 1e6))
		sent := now()
		if sent > end {
			return
		}
		target := fmt.Sprintf("%s/?ms=%g&size=%d&pieces=%d", url, service, answer, pieces)
		var response *http.Response
		if body > 0 {
			response, err = client.Post(target, "text/plain", bytes.NewReader(bytes.Repeat([]byte("b"), body)))
		} else {
			response, err = client.Get(target)
		}
		check(err)
		_, err = io.Copy(io.Discard, response.Body)
		check(err)
		response.Body.Close()
		fmt.Fprintln(out, response.Header.Get("X-Port"), sent, now())
	}
}
