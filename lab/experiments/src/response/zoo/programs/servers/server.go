// A server of net/http that takes as long for an answer as its request says. Usage: server PORT [CERT KEY]
package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"
)

// Between the pieces of an answer.
const gap = 2 * time.Millisecond

func serve(out http.ResponseWriter, request *http.Request) {
	io.Copy(io.Discard, request.Body)
	query := request.URL.Query()
	ms, _ := strconv.ParseFloat(query.Get("ms"), 64)
	size, _ := strconv.Atoi(query.Get("size"))
	pieces, _ := strconv.Atoi(query.Get("pieces"))
	time.Sleep(time.Duration(ms * 1e6))
	_, port, _ := net.SplitHostPort(request.RemoteAddr)
	out.Header().Set("X-Port", port)
	out.Header().Set("Content-Length", strconv.Itoa(size))
	for piece := 0; piece < pieces; piece++ {
		if piece > 0 {
			out.(http.Flusher).Flush()
			time.Sleep(gap)
		}
		length := size / pieces
		if piece == pieces-1 {
			length += size % pieces
		}
		out.Write(bytes.Repeat([]byte("a"), length))
	}
}

func main() {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	server := http.Server{Addr: "0.0.0.0:" + os.Args[1], Handler: http.HandlerFunc(serve), Protocols: protocols}
	var err error
	if len(os.Args) > 3 {
		err = server.ListenAndServeTLS(os.Args[2], os.Args[3])
	} else {
		err = server.ListenAndServe()
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
