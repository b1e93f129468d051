module example.org/connect

go 1.19
